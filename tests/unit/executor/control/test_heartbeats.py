"""Heartbeats beside a broker's loop that is slow or stands still: a real controller and connection."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.broker import Broker
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.loop.turn_loop import TurnLoop, TurnSelector
from tests.application_secret import SECRET

SESSION_MS: Final = 1_500
DEADLINE_S: Final = 30.0
CONFIG: Final = BrokerConfig.from_mapping(
    {
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": "200",
        # The only voter is the broker whose loop stands still, and heartbeats are answered all the same.
        "controller.quorum.fetch.timeout.ms": "60000",
    },
    racks=1,
)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerServer]:
    """A controller in a thread of its own, of sessions that are over soon."""
    server = ControllerServer(
        CONFIG,
        tmp_path / "controller",
        secret=SECRET,
        expected_brokers=[ExpectedBroker(0, "r")],
        new_cluster_id="c",
    )
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def running(controller: ControllerServer, directory: Path) -> AsyncIterator[Broker]:
    """Run a broker on this loop until the block ends."""
    broker = Broker(
        node_id=0,
        rack="r",
        controller=("127.0.0.1", int(controller.bootstrap_servers.rpartition(":")[2])),
        secret=SECRET,
        config=CONFIG,
        directories=[directory],
        host_name="127.0.0.1",
    )
    task = asyncio.create_task(broker.run())
    try:
        await until_leading(broker)
        yield broker
    finally:
        broker.life.stop("the test is over")
        await asyncio.gather(task, return_exceptions=True)


async def until_leading(broker: Broker) -> None:
    """Return when the broker may lead."""
    async with asyncio.timeout(DEADLINE_S):
        while broker.life.state is not BrokerState.RUNNING:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        while not broker.life.holds_lease(monotonic_ms()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_lease_of_a_broker_whose_loop_is_slow_is_kept(controller: ControllerServer, tmp_path: Path) -> None:
    """On a starved machine each turn of the loop takes long, and a heartbeat on it would need three."""

    async def scenario() -> None:
        async with running(controller, tmp_path / "data") as broker:
            for _ in range(5):
                time.sleep(0.4 * SESSION_MS / 1000)  # noqa: ASYNC251 - a turn of the loop that takes long
                assert broker.life.holds_lease(monotonic_ms())
                await asyncio.sleep(0)
            assert not controller.image.brokers[0].fenced

    asyncio.run(scenario())


def test_broker_whose_loop_stands_still_gives_its_lease_up_and_comes_back(
    controller: ControllerServer, tmp_path: Path
) -> None:
    """It serves nothing, so answered heartbeats must not keep others from its leaderships for ever."""

    async def scenario() -> None:
        async with running(controller, tmp_path / "data") as broker:
            deadline_s = time.monotonic() + DEADLINE_S
            while broker.life.holds_lease(monotonic_ms()) and time.monotonic() < deadline_s:
                time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still
            assert not broker.life.holds_lease(monotonic_ms())
            await until_leading(broker)
            assert not controller.image.brokers[0].fenced

    with asyncio.Runner(loop_factory=lambda: TurnLoop(TurnSelector())) as runner:
        runner.run(scenario())
