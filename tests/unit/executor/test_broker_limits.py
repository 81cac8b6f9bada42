"""A broker of a given configuration, in this process: what its connections and its logs see of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.broker import Broker
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.node.calling.channel import Channel
from sparklog.node.config import BrokerConfig
from sparklog.protocol.errors import KafkaError
from tests.application_secret import SECRET


async def until(condition: Callable[[], bool], broker: "asyncio.Task[None]") -> None:
    """Return when it holds; raise what ended the broker before."""
    async with asyncio.timeout(20):
        while not condition():
            if broker.done():
                broker.result()
            await asyncio.sleep(0.005)


def test_broker_obeys_its_connection_limits_and_checkpoint_intervals(tmp_path: Path) -> None:
    """A key that is accepted reaches what it is about, on the clock the broker really runs by."""
    given = {"max.connections.per.ip": "1", "replica.high.watermark.checkpoint.interval.ms": "50"}
    config = BrokerConfig.from_mapping(given, racks=1)
    controller = ControllerServer(
        config,
        tmp_path / "controller",
        secret=SECRET,
        expected_brokers=[ExpectedBroker(0, "r")],
        new_cluster_id="c",
    )
    controller.start()

    async def scenario() -> None:
        broker = Broker(
            node_id=0,
            rack="r",
            secret=SECRET,
            controller=("127.0.0.1", int(controller.bootstrap_servers.rpartition(":")[2])),
            config=config,
            directories=[tmp_path / "data"],
            host_name="127.0.0.1",
        )
        task = asyncio.create_task(broker.run())
        try:
            await until(lambda: broker.life.state is BrokerState.RUNNING, task)
            port = broker.endpoints[0].port
            first = await Channel.connect("127.0.0.1", port, "test")
            await first.negotiate()
            second = await Channel.connect("127.0.0.1", port, "test")
            with pytest.raises(KafkaError, match="NETWORK_EXCEPTION"):
                await second.negotiate()
            checkpoint = tmp_path / "data" / "replication-offset-checkpoint"
            for _ in range(2):
                await until(checkpoint.exists, task)
                checkpoint.unlink()
            first.close()
        finally:
            broker.life.stop("the test is over")
            await asyncio.gather(task, return_exceptions=True)

    try:
        asyncio.run(scenario())
    finally:
        controller.stop()
