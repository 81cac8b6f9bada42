"""What coordinators tell of themselves, under Kafka's names."""

from typing import Any

from sparklog.executor.coordinators.groups.machine.group import GroupType
from sparklog.executor.coordinators.groups.machine.offsets import CommittedPartition, OffsetCommit
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.node.metrics import coordinators
from sparklog.node.metrics.catalogue import metrics_of
from sparklog.node.metrics.names import Metric
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.coordinators.groups.group_conversation import GroupConversation

TOPIC = "__consumer_offsets"


@with_brokers()
async def test_broker_tells_of_its_groups_and_transactions(brokers: Brokers) -> None:
    """Whoever has Kafka's boards looks at these first when consumers stand still."""
    replicas = brokers.brokers[0].replicas
    runtime = replicas.coordinators.groups
    topic_id = await brokers.create_topic(TOPIC, [(0,)])
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: runtime.partitions == {0: CoordinatorState.ACTIVE}, "it is loaded")
    partitions = (CommittedPartition(0, 5, -1, None), CommittedPartition(1, 6, -1, None))
    commit = OffsetCommit("g", "", None, -1, 9, (("t", None, partitions),))

    def decide(machine: Any, token: Any, now: Now) -> CoordinatorResult:
        records, errors = machine.commit_offsets(commit, now)
        return CoordinatorResult(records, (Reply(token, errors),))

    answers: list[Any] = []
    runtime.submit_to(0, decide, lambda error_code: error_code).bind(answers.append)
    await until(lambda: bool(answers), "it is committed")
    told = replicas.metrics.snapshot(1 << 40)

    def figure(metric: Metric, **tags: str) -> float:
        return told[metric.of(**tags)]

    assert figure(coordinators.GROUP_PARTITIONS, state="active") == 1
    assert figure(coordinators.GROUP_PARTITIONS, state="loading") == 0
    assert figure(coordinators.OFFSET_COMMITS) == figure(coordinators.NUM_OFFSETS) == 2
    assert figure(coordinators.GROUP_QUEUE_SIZE) == figure(coordinators.LOG_APPEND_RETRY_QUEUE) == 0
    assert figure(coordinators.VERIFICATION_FAILURES) == 0
    late = set(metrics_of(coordinators)) - {
        metric
        for metric in metrics_of(coordinators)
        if any(name[:3] == metric[:3] and name.attribute == metric.of().attribute for name in told)
    }
    # There were no loads in the half minute before.
    assert late == {*coordinators.GROUP_LOAD_TIMES, *coordinators.TRANSACTION_LOAD_TIMES}


@with_brokers()
async def test_broker_tells_for_half_a_minute_how_long_a_load_took(brokers: Brokers) -> None:
    """After a failover that is how long groups have waited."""
    replicas = brokers.brokers[0].replicas
    runtime = replicas.coordinators.groups
    topic_id = await brokers.create_topic(TOPIC, [(0,)])
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: runtime.partitions == {0: CoordinatorState.ACTIVE}, "it is loaded")
    loaded_ms, _ = runtime.loads[-1]
    took_ms = [took_ms for _, took_ms in runtime.loads]
    for metric in coordinators.GROUP_LOAD_TIMES:
        told_ms = replicas.metrics.snapshot(loaded_ms + 29_000)[metric.of()]
        assert min(took_ms) <= told_ms <= max(took_ms)
    told = replicas.metrics.snapshot(loaded_ms + 31_000)
    assert not any(metric.of() in told for metric in coordinators.GROUP_LOAD_TIMES)


def test_groups_are_counted_by_state_every_minute_simple_ones_included() -> None:
    """There may be a million simple groups, so that nobody may go through them for a figure."""
    groups = GroupConversation()
    groups.settle("a")
    for number in range(3):
        groups.commit(number, number, group_id=f"simple {number}")
    groups.pass_time(60_000)
    assert groups.machine.states == {(GroupType.CLASSIC, "Empty"): 4}  # its member's session is over
    assert groups.machine.metrics.completed_rebalances == 1
    assert (groups.machine.metrics.offset_commits, groups.machine.offsets.store.offset_count) == (3, 3)
    groups.restart()
    assert groups.machine.offsets.store.offset_count == 3
    assert groups.machine.states == {(GroupType.CLASSIC, "Empty"): 4}
