"""A controller and a broker in this process, each listener of which can be attacked and measured."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.broker import Broker
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.node.calling.channel import Channel
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.partition_for import CoordinatorType
from sparklog.node.serving.listener import Listener, ListenerBounds, ListenerIdentity, Service
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import ErrorCode
from tests.amplification.shapes import Known
from tests.application_secret import SECRET

_CONFIG: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
}
PARTITIONS: Final = 20
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Listening:
    """One listener."""

    name: str
    port: int
    versions: dict[ApiKey, SupportedVersions]
    many: frozenset[ApiKey]
    """Of which a request may have more items than are read in one go."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running cluster."""

    known: Known
    listeners: tuple[Listening, ...]


@asynccontextmanager
async def attacked_cluster(directory: Path) -> AsyncIterator[Target]:
    """Run a controller and a broker with one topic."""
    listening: list[Listening] = []
    listeners: list[Listener] = []
    start = Listener.start.__func__  # type: ignore[attr-defined]

    async def noted(
        cls: type[Listener],
        host: str,
        port: int,
        service: Service,
        identity: ListenerIdentity,
        bounds: ListenerBounds,
        **options: Any,
    ) -> Listener:
        listener: Listener = await start(cls, host, port, service, identity, bounds, **options)
        apis = service.apis
        versions = {key: SupportedVersions(api.min_version, api.max_version) for key, api in apis.items()}
        many = frozenset(key for key, api in apis.items() if api.many)
        listening.append(Listening(identity.name, listener.port, versions, many))
        listeners.append(listener)
        return listener

    with patch.object(Listener, "start", classmethod(noted)):
        async with _cluster(directory, listening) as target:
            for listener in listeners:
                await listener.load()  # what they do by and by, and what would be measured, too
            yield target


@asynccontextmanager
async def _cluster(directory: Path, listening: list[Listening]) -> AsyncIterator[Target]:
    config = BrokerConfig.from_mapping(_CONFIG, racks=1)
    server = ControllerServer(
        config,
        directory / "controller",
        secret=SECRET,
        expected_brokers=[ExpectedBroker(0, "r")],
        new_cluster_id="c",
    )
    server.start()
    controller_port = int(server.bootstrap_servers.rpartition(":")[2])
    broker = Broker(
        node_id=0,
        rack="r",
        host_name="127.0.0.1",
        config=config,
        controller=("127.0.0.1", controller_port),
        secret=SECRET,
        directories=[directory / "data"],
        on_state=lambda state: None,
    )
    running = asyncio.create_task(broker.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while broker.life.state is not BrokerState.RUNNING:
                assert not running.done(), running.exception()
                await asyncio.sleep(0.01)
            channel = await Channel.connect("127.0.0.1", controller_port, "test")
            await channel.request(_CREATE)
            channel.close()
            while _TOPIC not in broker.image().topics.by_name:  # noqa: ASYNC110  (it has no event)
                await asyncio.sleep(0.01)
            topic = broker.image().topics.by_name[_TOPIC]
            await _have_coordinators(broker.endpoints[0].port)
        yield Target(Known(topic.name, topic.topic_id), tuple(listening))
    finally:
        broker.life.stop("the attack is over")
        await asyncio.gather(running, return_exceptions=True)
        server.stop()


async def _have_coordinators(port: int) -> None:
    """Have the coordinators' topics created, which would else be when somebody first asks for them.

    What a request takes is measured for the whole process, and must not be measured beside that.
    """
    channel = await Channel.connect("127.0.0.1", port, "test")
    try:
        for key_type in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("c",))
            error_code = None
            while error_code is not ErrorCode.none:
                error_code = (await channel.request(request)).coordinators[0].error_code
    finally:
        channel.close()


_TOPIC: Final = "t"
_CREATE: Final = CreateTopicsRequest(
    topics=(
        CreatableTopic(
            name=_TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=(), configs=()
        ),
    )
)
