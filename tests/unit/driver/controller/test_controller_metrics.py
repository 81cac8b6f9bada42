"""What the controller measures of itself must never cost more than a figure."""

import asyncio

from sparklog.driver.controller.controller_metrics import ControllerMetrics
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.node.clocks import monotonic_ms
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


def test_figures_of_tables_are_read_with_the_others() -> None:
    """A table that stands still for a day is noticed by an alarm, not by its readers."""

    async def scenario() -> None:
        kept = BrokerMetrics()
        metrics = ControllerMetrics(DescriptorBudget.of_process(), kept)
        now_ms = monotonic_ms()
        status = TableStatus("t", "topics.t", 1, {0: 5}, 7, None, 3, now_ms - 90_000, commits=4, failures=2)
        metrics.watch([], lambda: None, lambda: [status])
        metrics.tick(0.0)
        values = kept.latest()[CONTROLLER_ID].values
        found = {name.name: value for name, value in values.items() if name.type == "TopicTables"}
        assert found.pop("CommitLagMs") >= 90_000
        assert found == {"CommitsPerSec": 4, "FailuresPerSec": 2, "CommitLagRecords": 7, "Files": 3}

    asyncio.run(scenario())
