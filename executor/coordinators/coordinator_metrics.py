"""Metrics of coordinators under Kafka's names (`sparklog/node/metrics/coordinators.py`)."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from sparklog.executor.coordinators.groups.machine.group import GroupType
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.node.metrics import coordinators
from sparklog.node.metrics.names import Kind, Metric
from sparklog.node.metrics.registry import Sample

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
