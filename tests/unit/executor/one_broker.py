"""A driver's controller and one broker in this process, of any configuration."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.broker import Broker
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.node.config import BrokerConfig
from sparklog.user.client.config import parse_bootstrap_servers
from tests.application_secret import SECRET

DEADLINE_S = 20.0


@asynccontextmanager
async def one_broker(
    directory: Path, configuration: Mapping[str, str]
) -> AsyncIterator[tuple[ControllerServer, Broker]]:
    """Run both until the block ends; they serve."""
    config = BrokerConfig.from_mapping(configuration, racks=1)
    controller = ControllerServer(
        config,
        directory / "controller",
        secret=SECRET,
        expected_brokers=[ExpectedBroker(0, "r")],
        new_cluster_id="c",
    )
    await asyncio.to_thread(controller.start)
    (controller_address,) = parse_bootstrap_servers(controller.bootstrap_servers)
    try:
        broker = Broker(
            node_id=0,
            rack="r",
            secret=SECRET,
            controller=controller_address,
            config=config,
            directories=[directory / "data"],
            host_name="127.0.0.1",
        )
        running = asyncio.create_task(broker.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                while broker.life.state is not BrokerState.RUNNING:
                    if running.done():
                        running.result()
                    await asyncio.sleep(0.005)
                while not controller.serves_with(1):  # noqa: ASYNC110 - the broker runs by itself
                    await asyncio.sleep(0.005)
            yield controller, broker
        finally:
            broker.life.stop("the test is over")
            await asyncio.gather(running, return_exceptions=True)
    finally:
        await asyncio.to_thread(controller.stop)
