"""What the controller measures of itself must never cost more than a figure."""

import asyncio

from sparklog.driver.controller.controller_metrics import ControllerMetrics
from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.serving.listener import Listener, Service


async def listening() -> Listener:
    return await Listener.start("127.0.0.1", 0, Service(apis={}))


def test_figure_that_cannot_be_read_does_not_end_the_controllers_loop() -> None:
    """The loop answers heartbeats: for want of a file descriptor to count files by, the cluster would end."""

    async def scenario() -> None:
        kept = BrokerMetrics()
        metrics = ControllerMetrics(DescriptorBudget.of_process(), kept)
        listener = await listening()
        refused = True

        def active_controller() -> None:
            if refused:
                raise OSError(24, "Too many open files")

        metrics.watch([listener], active_controller)
        try:
            metrics.tick(0.0)
            assert not kept.latest()
            refused = False
            metrics.tick(0.0)
            assert kept.latest()
        finally:
            await listener.close()

    asyncio.run(scenario())
