"""The broker as a whole, in this process: how it starts, and every way in which it ends."""

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse

from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.broker import Broker
from sparklog.executor.control.machine.broker_lifecycle import BrokerReplacedError, BrokerState
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Deferred, Request
from sparklog.node.storage import DirectoryLockedError, ForeignDirectoryError, LogDirectory, MetaProperties
from sparklog.node.storage.directory.log_directory import CLEAN_SHUTDOWN_MARKER
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition
from tests.application_secret import SECRET
from tests.unit.executor.controller_script import lead_whoever_announces_itself, scripted_controller

NO_TIME = timedelta(0)
CONFIG = BrokerConfig.from_mapping({}, racks=1)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerServer]:
    """A real controller of cluster `c`."""
    server = new_controller(tmp_path / "controller")
    server.start()
    yield server
    server.stop()


def new_controller(directory: Path) -> ControllerServer:
    return ControllerServer(
        CONFIG, directory, secret=SECRET, expected_brokers=[ExpectedBroker(0, "r")], new_cluster_id="c"
    )


def new_broker(directory: Path, port: int, states: list[BrokerState] | None = None, **other: Any) -> Broker:
    return Broker(
        **{"node_id": 0, "rack": "r", "host_name": "127.0.0.1", "config": CONFIG, **other},
        controller=("127.0.0.1", port),
        secret=SECRET,
        directories=[directory],
        on_state=(lambda state: None) if states is None else states.append,
    )


def port_of(server: ControllerServer) -> int:
    return int(server.bootstrap_servers.rpartition(":")[2])


async def reached(broker: Broker, task: "asyncio.Task[None]", state: BrokerState) -> None:
    """Return when the broker is in the state; raise what ended it before."""
    async with asyncio.timeout(20):
        while broker.life.state is not state:
            if task.done():
                task.result()
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(broker: Broker) -> Any:
    """Run the broker until the block ends; then it must end by itself or be stopped."""
    task = asyncio.create_task(broker.run())
    try:
        yield task
    finally:
        broker.life.stop("the test is over")
        await asyncio.gather(task, return_exceptions=True)


def test_broker_runs_through_its_states_and_leaves_a_clean_directory(
    controller: ControllerServer, tmp_path: Path
) -> None:
    """Start, serve, stop: the life every other test takes for granted."""
    states: list[BrokerState] = []
    directory = tmp_path / "data"

    async def scenario() -> None:
        broker = new_broker(directory, port_of(controller), states)
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)
            assert broker.image().brokers[0].listeners == broker.endpoints
            broker.life.stop("enough")
            await asyncio.wait_for(task, 20)
            assert not broker.life.cluster_ended
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(broker.endpoints[0].host, broker.endpoints[0].port)

    asyncio.run(scenario())
    assert states == [
        BrokerState.STARTING,
        BrokerState.RECOVERY,
        BrokerState.RUNNING,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
        BrokerState.NOT_RUNNING,
    ]
    assert (directory / CLEAN_SHUTDOWN_MARKER).exists()
    opened = LogDirectory.open(directory)
    assert opened.previous_broker_epoch == controller.image.brokers[0].broker_epoch
    assert opened.meta is not None
    assert (opened.meta.cluster_id, opened.meta.node_id) == ("c", 0)
    opened.close()


def test_broker_of_a_controller_that_is_slow_waits_for_answers_as_long_as_half_a_session(
    controller: ControllerServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fetches of the metadata log were given up sooner: on a starved host leases ran out for nothing else."""
    caplog.set_level("INFO")

    async def scenario() -> None:
        config = BrokerConfig.from_mapping({"controller.quorum.request.timeout.ms": "0"}, racks=1)
        broker = new_broker(tmp_path / "data", port_of(controller), config=config)
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)

    asyncio.run(scenario())
    assert "was not answered" not in caplog.text


def test_broker_told_by_the_controller_to_shut_down_leaves(
    controller: ControllerServer, tmp_path: Path
) -> None:
    """That is how `cluster.stop()` reaches brokers on other hosts."""

    async def scenario() -> None:
        broker = new_broker(tmp_path / "data", port_of(controller))
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)
            controller.shut_down_brokers()
            await asyncio.wait_for(asyncio.shield(task), 20)
            assert broker.life.cluster_ended

    asyncio.run(scenario())


def test_broker_on_anothers_directory_is_refused_by_name(tmp_path: Path) -> None:
    """Another broker's records may not be mixed with this one's."""

    async def scenario(meta: MetaProperties, path: Path) -> None:
        directory = LogDirectory.open(path)
        directory.format(meta)
        with pytest.raises(DirectoryLockedError):
            await new_broker(path, 1).run()
        directory.close()
        with pytest.raises(ForeignDirectoryError):
            await new_broker(path, 1).run()
        LogDirectory.open(path).close()

    asyncio.run(scenario(MetaProperties("c", 7, UUID(int=500)), tmp_path / "data"))


def test_broker_on_every_interface_is_known_by_the_name_it_was_given(
    controller: ControllerServer, tmp_path: Path
) -> None:
    """What a machine calls itself need not be a name that others resolve."""
    config = BrokerConfig.from_mapping({"listeners": "PLAINTEXT://0.0.0.0:0"}, racks=1)

    async def scenario() -> None:
        broker = new_broker(tmp_path / "data", port_of(controller), config=config, host_name="localhost")
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)
            (endpoint,) = controller.image.brokers[0].listeners
            assert endpoint.host == "localhost"
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.close()

    asyncio.run(scenario())


def test_broker_runs_once_the_process_before_it_lets_its_directory_go(
    controller: ControllerServer, tmp_path: Path
) -> None:
    """A killed task lives on for seconds; the next one may ask again without starting anew."""
    before = LogDirectory.open(tmp_path / "data")

    async def scenario() -> None:
        broker = new_broker(tmp_path / "data", port_of(controller))
        with pytest.raises(DirectoryLockedError):
            await broker.run()
        before.close()
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)

    asyncio.run(scenario())


def test_broker_of_another_cluster_is_refused_by_the_controller(
    controller: ControllerServer, tmp_path: Path
) -> None:
    """The address may be right and the directory wrong; nothing in it is touched."""
    path = tmp_path / "of another cluster"

    async def scenario() -> None:
        broker = new_broker(tmp_path / "data", port_of(controller))
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)
            directory = LogDirectory.open(path)
            directory.format(MetaProperties("other", 0, UUID(int=500)))
            directory.close()
            with pytest.raises(ForeignDirectoryError, match="other"):
                await asyncio.wait_for(new_broker(path, port_of(controller)).run(), 20)

    asyncio.run(scenario())
    opened = LogDirectory.open(path)
    assert opened.meta == MetaProperties("other", 0, UUID(int=500))
    opened.close()


def test_broker_whose_epoch_was_replaced_ends_with_an_error(tmp_path: Path) -> None:
    """A zombie must not linger: its directory is wanted, and its clients are misled."""

    async def scenario() -> None:
        script = {
            ApiKey.BROKER_REGISTRATION: lambda _: BrokerRegistrationResponse(
                throttle_time=NO_TIME, error_code=ErrorCode.none, broker_epoch=3
            ),
            ApiKey.BROKER_HEARTBEAT: lambda _: BrokerHeartbeatResponse(
                throttle_time=NO_TIME, error_code=ErrorCode.stale_broker_epoch, should_shut_down=False
            ),
            ApiKey.FETCH: _never,
            ApiKey.ADD_RAFT_VOTER: lead_whoever_announces_itself,
        }
        async with scripted_controller(script) as listener:
            with pytest.raises(BrokerReplacedError):
                await asyncio.wait_for(new_broker(tmp_path / "data", listener.port).run(), 20)

    asyncio.run(scenario())


def test_broker_whose_controller_vanished_stops_when_asked(tmp_path: Path) -> None:
    """When the driver dies nobody is left to give leave to go; flushing must not wait for it."""

    async def scenario() -> None:
        server = new_controller(tmp_path / "controller")
        server.start()
        broker = new_broker(tmp_path / "data", port_of(server))
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)
            server.stop()
            broker.life.stop("the driver is gone")
            async with asyncio.timeout(20):
                await asyncio.shield(task)
            assert broker.life.cluster_ended, "it did not wait for leave to go until its patience ended"
        assert (tmp_path / "data" / CLEAN_SHUTDOWN_MARKER).exists()

    asyncio.run(scenario())


def test_broker_that_never_found_a_controller_stops_when_asked(tmp_path: Path) -> None:
    """A task that is cancelled while it starts must end, too."""

    async def scenario() -> None:
        broker = new_broker(tmp_path / "data", 1)
        async with running(broker) as task:
            await reached(broker, task, BrokerState.STARTING)
            broker.life.stop("enough")
            async with asyncio.timeout(20):
                await asyncio.shield(task)

    asyncio.run(scenario())


def test_broker_whose_driver_goes_before_it_leads_leaves(tmp_path: Path) -> None:
    """An application that is stopped while it waits for voters has nobody who could tell the brokers."""

    async def scenario() -> None:
        two = [ExpectedBroker(0, "r"), ExpectedBroker(1, "s")]
        server = ControllerServer(
            CONFIG, tmp_path / "controller", secret=SECRET, expected_brokers=two, new_cluster_id="c"
        )
        server.start()
        broker = new_broker(tmp_path / "data", port_of(server))
        task = asyncio.create_task(broker.run())
        async with asyncio.timeout(20):
            while server.missing is None or "broker 0" in server.missing:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await asyncio.to_thread(server.stop)
        await asyncio.wait_for(task, 20)
        assert broker.life.cluster_ended

    asyncio.run(scenario())


def with_a_log(path: Path) -> Path:
    """Leave a data directory with one log as a killed broker does; return the log's own directory."""
    directory = LogDirectory.open(path)
    directory.format(MetaProperties("c", 0, UUID(int=500)))
    log = directory.begin_log(TopicPartition("topic", 0), UUID(int=7), LogConfig(), 0)
    log.append_as_follower(build_batch([SimpleRecord(value=b"v")], base_offset=0, leader_epoch=0), 0)
    log.close(clean=False)
    directory.close()
    return log.directory


async def stopped_without_a_leader(path: Path) -> None:
    """Run a broker that never finds a leader, and stop it."""
    broker = new_broker(path, 1)
    async with running(broker) as task:
        await reached(broker, task, BrokerState.STARTING)
        broker.life.stop("enough")
        await asyncio.wait_for(asyncio.shield(task), 20)


def test_broker_stopped_before_its_first_image_has_flushed_what_it_loaded(tmp_path: Path) -> None:
    """The marker says that nothing need be recovered, of logs that nobody has asked for yet, too."""
    log_directory = with_a_log(tmp_path)
    asyncio.run(stopped_without_a_leader(tmp_path))
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    assert (log_directory / "00000000000000000001.snapshot").exists(), "the log was closed properly"


def test_broker_stopped_before_its_first_image_does_not_vouch_for_a_log_that_failed(tmp_path: Path) -> None:
    """A marker over a log that is not on disk would have its tail believed."""
    log_directory = with_a_log(tmp_path)
    (log_directory / "00000000000000000001.snapshot").mkdir()
    asyncio.run(stopped_without_a_leader(tmp_path))
    assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_broker_notices_at_once_that_the_driver_is_dead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the connection says it; no time-out has to pass."""

    async def scenario() -> None:
        server = new_controller(tmp_path / "controller")
        server.start()
        broker = new_broker(tmp_path / "data", port_of(server))
        async with running(broker) as task:
            await reached(broker, task, BrokerState.RUNNING)
            await asyncio.to_thread(server.stop)
            async with asyncio.timeout(20):
                while "The connection to the controller" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            assert broker.life.state is BrokerState.RUNNING

    asyncio.run(scenario())


def _never(request: Request) -> Deferred:
    return Deferred()
