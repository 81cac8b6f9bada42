"""Elections on request and by themselves, and eligible leader replicas."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.elect_leaders.v2 import ElectLeadersRequest
from kio.schema.elect_leaders.v2.request import TopicPartitions

from driver.controller.decision import Decision
from sparklog.errors import ErrorCode
from sparklog.metadata.schemas import (
    NO_LEADER,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from tests.unit.controller.conversation import Conversation, creatable, registration

PREFERRED, UNCLEAN = 0, 1


def elect(conversation: Conversation, election_type: int, *partitions: int, name: str = "t") -> Decision:
    """Ask for an election, of all partitions if none is named."""
    return conversation.say(
        ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=(TopicPartitions(topic=name, partitions=partitions),) if partitions else None,
            timeout=timedelta(seconds=1),
        )
    )


def errors(reply: Any) -> list[ErrorCode]:
    """Return the errors of all partitions."""
    return [
        partition.error_code
        for topic in reply.replica_election_results
        for partition in topic.partition_result
    ]


@pytest.fixture
def moved() -> Conversation:
    """A partition that broker 1 leads after its preferred leader 0 was away; 0 is in sync again."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    conversation.say(registration(0, incarnation=2))
    conversation.heartbeat(0)
    conversation.propose(1, (1, 0))
    return conversation


def test_elect_preferred_gives_leadership_back(moved: Conversation) -> None:
    """After a restart of every broker all leaders would lie on the last one otherwise."""
    decision = elect(moved, PREFERRED, 0)
    assert decision.records == [PartitionChangeRecord(partition_id=0, topic_id=moved.topic_id(), leader=0)]
    assert errors(decision.reply) == [ErrorCode.none]
    assert errors(elect(moved, PREFERRED, 0).reply) == [ErrorCode.election_not_needed]


def test_elect_preferred_of_all_is_silent_about_what_is_right(moved: Conversation) -> None:
    """Kafka answers a request for all partitions with those that were not right."""
    moved.create(creatable("u", assignments={0: (0, 1)}))
    assert errors(elect(moved, PREFERRED).reply) == [ErrorCode.none]


def test_elect_preferred_not_in_sync_is_refused() -> None:
    """The preferred replica leads only when it has every committed record."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    decision = elect(conversation, PREFERRED, 0)
    assert (decision.records, errors(decision.reply)) == ([], [ErrorCode.preferred_leader_not_available])


def test_elect_unclean_takes_what_is_there() -> None:
    """The administrator has decided that an old log is better than none."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.propose(0, (0,))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    decision = elect(conversation, UNCLEAN, 0)
    assert decision.records == [
        PartitionChangeRecord(
            partition_id=0, topic_id=conversation.topic_id(), isr=(1,), leader=1, leader_recovery_state=1
        )
    ]


def test_elect_for_unknown_partition_or_type_is_refused(moved: Conversation) -> None:
    """The request of a confused client changes nothing."""
    assert errors(elect(moved, PREFERRED, 9).reply) == [ErrorCode.unknown_topic_or_partition]
    assert elect(moved, 7, 0).reply.error_code is ErrorCode.invalid_request


def test_balance_comes_by_itself_after_its_interval(moved: Conversation) -> None:
    """Nobody should have to remember to restore the leaders."""
    moved.tick()
    for _ in range(299):
        moved.heartbeat(0)
        moved.heartbeat(1)
        assert moved.tick(1000) == []
    moved.heartbeat(0)
    moved.heartbeat(1)
    assert moved.tick(1000) == [PartitionChangeRecord(partition_id=0, topic_id=moved.topic_id(), leader=0)]


def with_eligible_leader_replicas() -> Conversation:
    """Three replicas of which two must be in sync, in a cluster with KIP-966."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    feature = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
    conversation.take(Decision([feature], None))
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    return conversation


def gone(conversation: Conversation, broker_id: int) -> Decision:
    """Let a broker's process end."""
    return conversation.take(conversation.controller.broker_gone(broker_id, conversation.epoch(broker_id)))


def test_eligible_replicas_last_failures_leave_them_behind() -> None:
    """Below min.insync.replicas nothing is committed, so those who leave then still have everything."""
    conversation = with_eligible_leader_replicas()
    for broker_id in (0, 1, 2):
        gone(conversation, broker_id)
    partition = conversation.partition()
    assert (partition.isr, partition.elr, partition.leader) == ((), (1, 2), None)
    assert partition.last_known_elr == (2,)


def test_eligible_replica_back_after_clean_stop_leads() -> None:
    """A clean election although every in-sync replica had failed."""
    conversation = with_eligible_leader_replicas()
    for broker_id in (0, 1, 2):
        gone(conversation, broker_id)
    clean = registration(
        1, incarnation=2, previous_broker_epoch=conversation.epoch(1), eligible_leader_replicas=True
    )
    assert conversation.say(clean).reply.error_code is ErrorCode.none
    decision = conversation.heartbeat(1)
    assert decision.records[1] == PartitionChangeRecord(
        partition_id=0,
        topic_id=conversation.topic_id(),
        isr=(1,),
        leader=1,
        eligible_leader_replicas=(2,),
        last_known_elr=(),
    )


def test_eligible_replica_back_after_crash_is_eligible_no_more() -> None:
    """Its unsynced tail may be gone, and with it what it had acknowledged."""
    conversation = with_eligible_leader_replicas()
    for broker_id in (0, 1, 2):
        gone(conversation, broker_id)
    decision = conversation.say(registration(1, incarnation=2, eligible_leader_replicas=True))
    assert decision.records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=conversation.topic_id(), eligible_leader_replicas=(2,)
    )
    conversation.heartbeat(1)
    assert conversation.partition().leader is None


def test_eligible_replicas_are_forgotten_when_isr_is_large_enough() -> None:
    """From then on records are committed without them."""
    conversation = with_eligible_leader_replicas()
    gone(conversation, 0)
    gone(conversation, 1)
    assert conversation.partition().elr == (1,)
    conversation.say(registration(0, incarnation=2, eligible_leader_replicas=True))
    conversation.heartbeat(0)
    assert conversation.propose(2, (2, 0)).records == [
        PartitionChangeRecord(
            partition_id=0, topic_id=conversation.topic_id(), isr=(2, 0), eligible_leader_replicas=()
        )
    ]


def test_leaderless_partition_without_the_feature_keeps_its_last_member() -> None:
    """Without KIP-966 the ISR never becomes empty."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", assignments={0: (0,)}))
    assert gone(conversation, 0).records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=conversation.topic_id(), leader=NO_LEADER
    )
    assert conversation.partition().isr == (0,)
