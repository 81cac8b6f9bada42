"""Brokers without a controller, in one process: real logs, listeners and fetchers, an image made by hand.

    async with Brokers(tmp_path, count=3) as brokers:
        await brokers.create_topic("flights", replicas=[(0, 1, 2)])
        channel = await brokers.connect(0)

ISR proposals are checked and committed as the controller would, in this process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID, uuid4

from sparklog.executor.api import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
    write_txn_markers,
)
from sparklog.executor.api.fetch import fetch
from sparklog.executor.api.produce import produce
from sparklog.executor.api.services import PartitionServices
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.fetching.tier_building import TierReader
from sparklog.executor.partitions.isr_proposer import IsrAnswered
from sparklog.executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.replicas import ClusterMembership, ControllerRequests, Replicas
from sparklog.node.apis.listeners import listener_apis, listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.authorization.authorization import Authorization
from sparklog.node.calling.channel import Channel
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.directory.meta_properties import MetaProperties
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, ProducerId, TopicIdPartition

POLL_S = 0.005


_PARTITION_APIS: Final = (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
    write_txn_markers,
    fetch,
    produce,
)
"""The modules whose handlers need no image."""


class OneBroker:
    """A broker's replicas behind a listener."""

    def __init__(self, broker_id: BrokerId, broker_epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.directory: LogDirectory
        self.directories: list[LogDirectory] = []
        """All of them, `directory` first."""
        self.failed_directories: list[LogDirectory] = []
        self.told_directories: list[tuple[TopicIdPartition, UUID]] = []
        """What the controller would have been told."""
        self.holds_lease = True
        self.suspicions = BrokerSuspicions(asyncio.get_running_loop())
        self.replicas: Replicas
        self.quotas: RequestQuotas
        self.apis: dict[ApiKey, Api]
        self.listener: Listener


class Brokers:
    """`count` brokers, ids from 0, whose metadata is what the test says."""

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        directories_each: int = 1,
        owner_epoch: int | None = 1,
    ) -> None:
        """`owner_epoch` is None for brokers whose tiers, if any, are the test's."""
        self.image: MetadataImage = EMPTY_IMAGE
        self.config = BrokerConfig.from_mapping({"replica.fetch.backoff.ms": "20", **(config or {})})
        self.count = count
        self.directories_each = directories_each
        self.owner_epoch = owner_epoch
        self.brokers: dict[BrokerId, OneBroker] = {}
        self.refuse_proposals: ErrorCode | None = None
        self.waits_for_files = True
        """Whether `commit` returns only when all logs are opened and deleted."""
        self.read_tier: TierReader | None = None
        """The reader of tiers of brokers that are started from now on; None for their own."""
        self.proposals: list[tuple[int, ...]] = []
        self._directory = directory
        self._closing = AsyncExitStack()
        self._next_broker_epoch = 100
        self._committing = asyncio.Lock()
        self._next_producer_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for broker_id in range(self.count):
            await self.start(broker_id)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker_id in list(self.brokers):
            await self.stop(broker_id)
        for task in list(self._tasks):
            task.cancel()
        await self._closing.aclose()

    async def start(self, broker_id: BrokerId) -> None:
        """Start a broker on its directory, which it keeps from one start to the next."""
        self._next_broker_epoch += 1
        broker = OneBroker(broker_id, self._next_broker_epoch)
        for number in range(self.directories_each):
            suffix = f"-{number}" if number else ""
            directory = LogDirectory.open(self._directory / f"broker-{broker_id}{suffix}")
            if directory.meta is None:
                directory.format(MetaProperties("test", broker_id, uuid4()))
            broker.directories.append(directory)
        broker.directory = broker.directories[0]
        broker.replicas = Replicas(
            ClusterMembership(
                broker_id=broker_id,
                broker_epoch=lambda: broker.broker_epoch,
                holds_lease=lambda now_ms: broker.holds_lease,
                owner_epoch=self.owner_epoch,
            ),
            ControllerRequests(
                isr_proposer=_Proposer(self, broker_id),
                assign_directory=lambda key, directory_id: broker.told_directories.append(
                    (key, directory_id)
                ),
                new_producer_id=self.new_producer_id,
            ),
            broker.directories,
            self.config,
            broker.suspicions,
            on_directory_failed=broker.failed_directories.append,
        )
        if broker.replicas.remote_reader is not None:
            from tests.unit.executor.remote_reads.lasting_decoder import lasting_decoder

            broker.replicas.remote_reader.decoder = lasting_decoder()
        if self.read_tier is not None:
            broker.replicas.tier_building.read_tier = self.read_tier
        await broker.replicas.start()
        broker.quotas = RequestQuotas(self.config.quota_windows)
        services = PartitionServices(config=self.config, replicas=broker.replicas, quotas=broker.quotas)
        handlers = {
            api_key: each for module in _PARTITION_APIS for api_key, each in module.handlers(services).items()
        } | broker.replicas.coordinators.transactions.handlers()
        broker.apis = listener_apis(Side.BROKER, handlers, broker.replicas.lease.obey)
        broker.listener = await Listener.start(
            "127.0.0.1",
            0,
            Service(apis=broker.apis, admission=self._admission(broker.quotas)),
            ListenerIdentity(name=f"broker-{broker_id}", listener_name="CLIENTS"),
        )
        self.brokers[broker_id] = broker
        await self.commit(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=uuid4(),
                broker_epoch=broker.broker_epoch,
                end_points=(
                    BrokerEndpoint(
                        name="PLAINTEXT", host="127.0.0.1", port=broker.listener.port, security_protocol=0
                    ),
                    BrokerEndpoint(
                        name="CLIENTS", host=f"b{broker_id}.example", port=9092, security_protocol=1
                    ),
                ),
                rack=f"rack-{broker_id}",
                fenced=False,
            )
        )

    def _admission(self, quotas: RequestQuotas) -> Admission:
        admission = Admission(meter=quotas.meter)
        if self.config.authorizer is None:
            return admission
        authorization = Authorization(
            self.config.authorizer,
            listener_guards(Side.BROKER, self.config),
            lambda: self.image,
            asyncio.get_running_loop(),
        )
        self._closing.callback(authorization.close)
        return admission._replace(authorize=authorization.admit)

    async def new_producer_id(self, timeout_ms: int) -> ProducerId:
        """Return an id that nobody has had, as the controller would."""
        self._next_producer_id += 1
        return self._next_producer_id

    async def stop(self, broker_id: BrokerId) -> None:
        """Stop a broker; the image goes on naming it."""
        broker = self.brokers.pop(broker_id)
        await broker.listener.close()
        await broker.replicas.shutdown()
        for directory in broker.directories:
            directory.close()

    async def commit(self, *records: MetadataRecord) -> None:
        """Append to the metadata log, so to say, and have every broker act on it."""
        async with self._committing:
            self.image, delta = replay_records(self.image, records, self.image.end_offset, 1)
            for broker in list(self.brokers.values()):
                for subscriber in (broker.suspicions, broker.quotas, *broker.replicas.subscribers):
                    await subscriber.apply(self.image, delta)
                if self.waits_for_files:
                    await broker.replicas.store.end_work(None)

    async def fence(self, broker_id: BrokerId) -> None:
        """The controller takes a broker for dead; its ISRs stay as they are."""
        broker_epoch = self.image.brokers[broker_id].broker_epoch
        await self.commit(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=1)
        )

    async def create_topic(
        self, name: str, replicas: Sequence[Sequence[BrokerId]], config: Mapping[str, str] | None = None
    ) -> UUID:
        """Create a topic; each partition is led by the first of its replicas, all in sync."""
        topic_id = uuid4()
        records: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
        records += [
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=tuple(assigned),
                isr=tuple(assigned),
                leader=assigned[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=(),
            )
            for partition, assigned in enumerate(replicas)
        ]
        records += [
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
            for key, value in (config or {}).items()
        ]
        await self.commit(*records)
        return topic_id

    async def delete_topic(self, topic_id: UUID) -> None:
        """Delete a topic."""
        await self.commit(RemoveTopicRecord(topic_id=topic_id))

    async def elect(self, topic_id: UUID, partition: int, leader: BrokerId, isr: Iterable[BrokerId]) -> None:
        """Make a broker the leader, with that ISR, in a new leader epoch."""
        await self.commit(
            PartitionChangeRecord(partition_id=partition, topic_id=topic_id, leader=leader, isr=tuple(isr))
        )

    async def connect(self, broker_id: BrokerId) -> Channel:
        """Return a connection to a broker, closed at the end of the test."""
        channel = await Channel.connect("127.0.0.1", self.brokers[broker_id].listener.port, "test")
        self._closing.callback(channel.close)
        return channel

    def replica(self, broker_id: BrokerId, topic_id: UUID, partition: int = 0) -> Replica:
        """Return a broker's replica."""
        found = self.brokers[broker_id].replicas.table.get(topic_id, partition)
        assert found is not None
        return found

    def answer_proposal(self, key: TopicIdPartition, proposal: ProposeIsr, answered: IsrAnswered) -> None:
        """Do as the controller does."""
        isr = tuple(broker_id for broker_id, _ in proposal.new_isr)
        self.proposals.append(isr)

        async def answer() -> None:
            registration = self.image.topics.partition(*key)
            assert registration is not None
            error_code = ErrorCode.none
            if self.refuse_proposals is not None:
                error_code = self.refuse_proposals
            elif proposal.leader_epoch != registration.leader_epoch:
                error_code = ErrorCode.fenced_leader_epoch
            elif proposal.partition_epoch != registration.partition_epoch:
                error_code = ErrorCode.invalid_update_version
            now_ms = int(asyncio.get_running_loop().time() * 1000)
            epochs = proposal.leader_epoch, proposal.partition_epoch + 1
            answered(IsrProposalAnswered(proposal, error_code, frozenset(isr), *epochs, now_ms))
            if error_code is ErrorCode.none:
                await self.commit(
                    PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id, isr=isr)
                )

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Proposer:
    def __init__(self, brokers: Brokers, broker_id: BrokerId) -> None:
        self._brokers = brokers
        self.broker_id = broker_id

    def propose(self, *arguments: Any) -> None:
        """Pass the proposal on, unless the broker was stopped meanwhile."""
        if self.broker_id in self._brokers.brokers:
            self._brokers.answer_proposal(*arguments)


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 25.0) -> None:
    """Return when `condition` holds.

    Raises:
        AssertionError: it did not within `timeout_s`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"{what}: not within {timeout_s} s"
        await asyncio.sleep(POLL_S)


def with_brokers(
    count: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    directories_each: int = 1,
    owner_epoch: int | None = 1,
) -> Callable[[Callable[[Brokers], Awaitable[None]]], Callable[[Path], None]]:
    """Run an async test with that many brokers, and end it after half a minute whatever happens."""

    def decorate(test: Callable[[Brokers], Awaitable[None]]) -> Callable[[Path], None]:
        # Not functools.wraps: pytest would look for the wrapped function's parameter.
        def run(tmp_path: Path) -> None:
            async def body() -> None:
                brokers = Brokers(
                    tmp_path, count, config, directories_each=directories_each, owner_epoch=owner_epoch
                )
                async with asyncio.timeout(30), brokers:
                    await test(brokers)

            asyncio.run(body())

        run.__module__ = test.__module__
        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        return run

    return decorate
