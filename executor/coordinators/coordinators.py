"""Composition of a broker's coordinators, without decisions.

Each kind is a runtime of its own. Roles and metadata reach them through `executor/replicas.py`, requests
through handlers of modules in `executor/api`.

Their metrics have Kafka's names (`sparklog/node/metrics/coordinators.py`).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final

from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.groups.machine.group import GroupType
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import NewProducerId
from sparklog.executor.coordinators.transactions.coordination import TransactionCoordination
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.metrics import coordinators
from sparklog.node.metrics.names import Kind, Metric
from sparklog.node.metrics.registry import Sample
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import BrokerId

_STATES: Final = {CoordinatorState.LOADING: "loading", CoordinatorState.ACTIVE: "active"}
_LOADS_MS: Final = 30_000


def _load_times(
    metrics: tuple[Metric, Metric], loads: "deque[tuple[int, int]]", now_ms: int
) -> Iterator[Sample]:
    """Yield the longest and the average load of the last half minute, if there was one."""
    while loads and loads[0][0] < now_ms - _LOADS_MS:
        loads.popleft()
    if loads:
        took_ms = [load_ms for _, load_ms in loads]
        longest, average = metrics
        yield Sample(longest.of(), Kind.GAUGE, max(took_ms))
        yield Sample(average.of(), Kind.GAUGE, sum(took_ms) / len(took_ms))


def group_samples(runtime: CoordinatorRuntime, metrics: GroupMetrics, now_ms: int) -> Iterator[Sample]:
    yield from _load_times(coordinators.GROUP_LOAD_TIMES, runtime.loads, now_ms)
    partitions = Counter(_STATES[state] for state in runtime.partitions.values() if state in _STATES)
    partitions["failed"] = len(runtime.failed)
    for state in ("loading", "active", "failed"):
        yield Sample(coordinators.GROUP_PARTITIONS.of(state=state), Kind.GAUGE, partitions[state])
    yield Sample(coordinators.GROUP_QUEUE_SIZE.of(), Kind.GAUGE, runtime.open_count)
    states: Counter[tuple[GroupType, str]] = Counter()
    offset_count = 0
    for machine in runtime.machines():
        assert isinstance(machine, GroupMachine)
        states.update(machine.states)
        offset_count += machine.offsets.store.offset_count
    by_type: Counter[GroupType] = Counter()
    for (group_type, _), count in states.items():
        by_type[group_type] += count
    for group_type in (GroupType.CLASSIC, GroupType.CONSUMER):
        yield Sample(coordinators.GROUP_COUNT.of(protocol=group_type), Kind.GAUGE, by_type[group_type])
    for state in coordinators.CONSUMER_STATES:
        name = coordinators.CONSUMER_GROUP_COUNT.of(state=state)
        yield Sample(name, Kind.GAUGE, states[GroupType.CONSUMER, state.capitalize()])
    yield Sample(coordinators.NUM_OFFSETS.of(), Kind.GAUGE, offset_count)
    yield Sample(coordinators.NUM_GROUPS.of(), Kind.GAUGE, by_type[GroupType.CLASSIC])
    for state, metric in coordinators.CLASSIC_STATES.items():
        yield Sample(metric.of(), Kind.GAUGE, states[GroupType.CLASSIC, state])
    yield Sample(coordinators.OFFSET_COMMITS.of(), Kind.METER, metrics.offset_commits)
    yield Sample(coordinators.OFFSET_EXPIRATIONS.of(), Kind.METER, metrics.offset_expirations)
    yield Sample(coordinators.OFFSET_DELETIONS.of(), Kind.METER, metrics.offset_deletions)
    yield Sample(coordinators.COMPLETED_REBALANCES.of(), Kind.METER, metrics.completed_rebalances)
    yield Sample(coordinators.CONSUMER_REBALANCES.of(), Kind.METER, metrics.consumer_rebalances)


def transaction_samples(runtime: CoordinatorRuntime, sender: MarkerSender, now_ms: int) -> Iterator[Sample]:
    yield from _load_times(coordinators.TRANSACTION_LOAD_TIMES, runtime.loads, now_ms)
    waiting = 0
    for machine in runtime.machines():
        assert isinstance(machine, TransactionMachine)
        waiting += machine.uncompleted_count
    yield Sample(coordinators.UNKNOWN_DESTINATION_QUEUE.of(), Kind.GAUGE, sender.leaderless_count)
    yield Sample(coordinators.LOG_APPEND_RETRY_QUEUE.of(), Kind.GAUGE, waiting)


_REST_S: Final = 0.0005
"""A million offsets are some thousand slices: the pauses add a second or two to their load."""


def group_coordinator(config: BrokerConfig, metrics: GroupMetrics) -> CoordinatorKind:
    return CoordinatorKind(
        topic=CONSUMER_OFFSETS_TOPIC,
        records=CONSUMER_OFFSETS_RECORDS,
        new_machine=lambda partition: GroupMachine(config, metrics),
        write_timeout_ms=config.offsets_commit_timeout_ms,
        load_buffer_bytes=config.offsets_load_buffer_size,
        rest_s=_REST_S,
        leads_on=True,
        codec=Codec(config.offsets_topic_compression_codec),
    )


class Coordinators:
    def __init__(
        self,
        node_id: BrokerId,
        config: BrokerConfig,
        executor: Executor,
        obey_lease: Callable[[], None],
        table: PartitionTable,
        new_producer_id: NewProducerId,
        cluster_credentials: ClusterCredentials,
    ) -> None:
        """`executor` reads logs and does heavy work; `obey_lease` comes before work without a request.

        `new_producer_id` allocates an unused id; `cluster_credentials` are those of connections to other
        brokers.
        """
        self._metrics = GroupMetrics()
        self.groups = CoordinatorRuntime(group_coordinator(config, self._metrics), executor, obey_lease)
        self.transactions = TransactionCoordination(
            node_id, config, table, executor, obey_lease, new_producer_id, cluster_credentials
        )
        self.listeners: Sequence[RoleListener[Replica]] = (self.groups, *self.transactions.listeners)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        yield from group_samples(self.groups, self._metrics, now_ms)
        yield from transaction_samples(self.transactions.runtime, self.transactions.sender, now_ms)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        await self.groups.apply(image, delta)
        await self.transactions.apply(image, delta)

    async def stop(self) -> None:
        """Close all coordinators; call before the replicas are stopped."""
        await self.transactions.stop()
        await self.groups.stop()
