"""AlterPartitionReassignments: replicas are added, get into sync, and only then the others are removed."""

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.partition_changes import Election, IsrRules, change_partition
from sparklog.driver.controller.machine.parts import joined, parts_of
from sparklog.node.apis.leadership import ALTER_PARTITION_REASSIGNMENTS
from sparklog.node.apis.parts import TOPICS_PER_PART
from sparklog.node.metadata.schemas import NO_LEADER_CHANGE, UNASSIGNED_DIRECTORY, PartitionChangeRecord
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of, registration


def request(
    target: tuple[int, ...] | None, *, topic: str = "t", number: int = 0, **fields: Any
) -> AlterPartitionReassignmentsRequest:
    """Return the request that moves one partition (None: calls it off)."""
    partition = ReassignablePartition(partition_index=number, replicas=target)
    return AlterPartitionReassignmentsRequest(
        timeout=timedelta(seconds=1),
        topics=(ReassignableTopic(name=topic, partitions=(partition,)),),
        **fields,
    )


def reassign(conversation: Conversation, target: tuple[int, ...] | None, **fields: Any) -> ControllerResult:
    """Ask for it, and have it."""
    decision = conversation.say(request(target, **fields))
    assert error_of(decision) is ErrorCode.none, decision.reply
    return decision


def error_of(decision: ControllerResult) -> ErrorCode:
    """Return the error of the only partition."""
    assert decision.reply.error_code is ErrorCode.none
    return ErrorCode(decision.reply.responses[0].partitions[0].error_code)


def change(conversation: Conversation, **fields: Any) -> PartitionChangeRecord:
    """Return a record about partition 0."""
    return PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), **fields)


def kill(conversation: Conversation, *broker_ids: int) -> None:
    """End the processes of brokers."""
    for broker_id in broker_ids:
        conversation.take(conversation.controller.broker_gone(broker_id, conversation.epoch(broker_id)))


def directories(*broker_ids: int) -> tuple[Any, ...]:
    return tuple(map(directory_of, broker_ids))


@pytest.fixture
def conversation() -> Conversation:
    """Six brokers and a partition on the first three, led by broker 0."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2, 3, 4, 5)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    return conversation


def test_reassignment_adds_replicas_and_leaves_isr_and_leader_as_they_are(conversation: Conversation) -> None:
    """Nobody is taken away before the new ones have the log."""
    decision = reassign(conversation, (3, 4, 2))
    assert decision.records == [
        change(
            conversation,
            replicas=(3, 4, 2, 0, 1),
            directories=directories(3, 4, 2, 0, 1),
            adding_replicas=(3, 4),
            removing_replicas=(0, 1),
        )
    ]
    partition = conversation.partition()
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == (
        (0, 1, 2),
        0,
        0,
        1,
    )


def test_reassignment_ends_when_all_of_its_target_is_in_sync(conversation: Conversation) -> None:
    """Replicas, ISR and leader change in one record, and the old leader is told that it is one no more."""
    reassign(conversation, (3, 4, 2))
    conversation.propose(0, (0, 1, 2, 3))
    assert conversation.partition().replicas == (3, 4, 2, 0, 1)
    decision = conversation.propose(0, (0, 1, 2, 3, 4))
    assert decision.records == [
        change(
            conversation,
            isr=(2, 3, 4),
            leader=3,
            replicas=(3, 4, 2),
            directories=directories(3, 4, 2),
            adding_replicas=(),
            removing_replicas=(),
        )
    ]
    assert decision.reply.topics[0].partitions[0].error_code is ErrorCode.new_leader_elected
    assert not conversation.partition().is_reassigning


def test_end_of_a_reassignment_raises_the_leader_epoch_of_a_leader_that_stays(
    conversation: Conversation,
) -> None:
    """What the leader knows of a removed replica must not be taken for that of one that comes back empty."""
    reassign(conversation, (0, 1, 3))
    decision = conversation.propose(0, (0, 1, 2, 3))
    assert decision.records == [
        change(
            conversation,
            isr=(0, 1, 3),
            leader=0,
            replicas=(0, 1, 3),
            directories=directories(0, 1, 3),
            adding_replicas=(),
            removing_replicas=(),
        )
    ]
    assert conversation.partition().leader_epoch == 1
    answer = decision.reply.topics[0].partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.isr) == (ErrorCode.none, 1, (0, 1, 3))


def test_reassignment_to_replicas_in_sync_is_over_at_once(conversation: Conversation) -> None:
    """A smaller replication factor, or another preferred leader, waits for nobody."""
    reassign(conversation, (2, 0))
    partition = conversation.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 0), (0, 2), 0)
    assert (partition.leader_epoch, partition.is_reassigning) == (1, False)


def test_reordered_replicas_keep_the_leader_epoch(conversation: Conversation) -> None:
    """Nobody is removed, so nobody has to begin anew; the balance of leaders comes later."""
    decision = reassign(conversation, (2, 1, 0))
    assert [record.leader for record in decision.records] == [NO_LEADER_CHANGE]  # type: ignore[attr-defined]
    assert conversation.partition().preferred_leader == 2


def test_reassignment_to_what_is_there_changes_nothing(conversation: Conversation) -> None:
    """A plan that is carried out twice is no new one."""
    assert reassign(conversation, (0, 1, 2)).records == []


def test_larger_replication_factor_counts_when_the_replicas_are_there(conversation: Conversation) -> None:
    """While it grows the partition stays with the replicas that it had."""
    conversation.create(creatable("one", assignments={0: (0,)}))
    conversation.say(request((0, 1, 2), topic="one"))
    partition = conversation.partition(name="one")
    assert (partition.replicas, partition.adding_replicas, partition.isr) == ((0, 1, 2), (1, 2), (0,))
    assert partition.original_replicas == (0,)


def test_reassignment_waits_for_a_target_that_is_fenced(conversation: Conversation) -> None:
    """A plan may name a broker that is being restarted."""
    kill(conversation, 3)
    reassign(conversation, (3, 1, 2))
    assert conversation.partition().isr == (0, 1, 2)
    conversation.say(registration(3, incarnation=2))
    conversation.heartbeat(3)
    conversation.propose(0, (0, 1, 2, 3))
    assert conversation.partition().replicas == (3, 1, 2)


def test_reassignment_away_from_a_dead_broker_needs_it_no_more(conversation: Conversation) -> None:
    """That is what most of them are for."""
    kill(conversation, 0)
    reassign(conversation, (3, 1, 2))
    conversation.propose(1, (1, 2, 3))
    partition = conversation.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 1, 2), (1, 2, 3), 1)


def test_reassignment_does_not_end_with_a_broker_that_has_just_died() -> None:
    """It is in the ISR for the one reason that so many partitions are changed one batch after the other."""
    conversation = Conversation(partitions_per_decision=1).start(0, 1)
    conversation.create(*(creatable(name, assignments={0: (0, 1)}) for name in ("s", "t")))
    kill(conversation, 0)
    assert conversation.partition().isr == (0, 1)
    reassign(conversation, (0,))
    partition = conversation.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((0, 1), (1,), 1)
    assert partition.removing_replicas == (1,)


def test_dead_leader_of_a_reassignment_is_followed_by_one_in_sync(conversation: Conversation) -> None:
    """Also by one that is to be removed, while the new ones lack records."""
    reassign(conversation, (3, 4, 5))
    kill(conversation, 0)
    assert conversation.partition().leader == 1
    conversation.propose(1, (1, 2, 3, 4, 5))
    assert (conversation.partition().replicas, conversation.partition().leader) == ((3, 4, 5), 3)


def test_cancelled_reassignment_leaves_nothing_behind(conversation: Conversation) -> None:
    """A new replica goes although it had come into sync, and its leadership with it."""
    reassign(conversation, (3, 4, 5))
    conversation.propose(0, (0, 1, 2, 3))
    kill(conversation, 0, 1, 2)
    assert (conversation.partition().leader, conversation.partition().isr) == (3, (3,))
    for broker_id in (0, 1, 2):
        conversation.say(registration(broker_id, incarnation=2))
        conversation.heartbeat(broker_id)
    conversation.propose(3, (0, 3))
    decision = reassign(conversation, None)
    assert [record.leader for record in decision.records] == [0]  # type: ignore[attr-defined]
    partition = conversation.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((0, 1, 2), (0,), 0)
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert set(partition.elr) <= {0, 1, 2}


def test_cancelling_what_is_no_reassignment_is_refused(conversation: Conversation) -> None:
    """Kafka's tools tell by it that somebody else was faster, or that it is over."""
    assert error_of(conversation.say(request(None))) is ErrorCode.no_reassignment_in_progress


def _only_new_in_sync(conversation: Conversation) -> None:
    """Move a partition of one replica, and lose that after the new one had become in sync."""
    conversation.create(creatable("t", assignments={0: (0,)}))
    reassign(conversation, (3, 4))
    conversation.propose(0, (0, 3))
    conversation.propose(0, (0, 3))
    kill(conversation, 0)
    assert conversation.partition().isr == (3,)


def test_cancelling_to_replicas_out_of_sync_is_refused() -> None:
    """They lack what was acknowledged since."""
    conversation = Conversation(min_insync_replicas="1").start(0, 3, 4)
    _only_new_in_sync(conversation)
    conversation.say(registration(0, incarnation=2))
    conversation.heartbeat(0)
    decision = conversation.say(request(None))
    assert (error_of(decision), decision.records) == (ErrorCode.invalid_replica_assignment, [])


def test_cancelling_to_replicas_out_of_sync_is_an_unclean_election_where_that_is_allowed() -> None:
    """And the leader says so (KIP-704)."""
    conversation = Conversation(min_insync_replicas="1", unclean_leader_election_enable="true").start(0, 3, 4)
    _only_new_in_sync(conversation)
    assert error_of(conversation.say(request(None))) is ErrorCode.invalid_replica_assignment
    conversation.say(registration(0, incarnation=2))
    conversation.heartbeat(0)
    reassign(conversation, None)
    partition = conversation.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((0,), (0,), 0)
    assert partition.leader_recovery_state.name == "RECOVERING"


def test_second_reassignment_is_called_off_to_what_was_there_before_the_first(
    conversation: Conversation,
) -> None:
    """Kafka's own controller would leave the replica of the first one behind."""
    reassign(conversation, (3, 1, 2))
    reassign(conversation, (4, 1, 2))
    partition = conversation.partition()
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        (4, 1, 2, 0),
        (4,),
        (0,),
    )
    reassign(conversation, None)
    assert sorted(conversation.partition().replicas) == [0, 1, 2]


def test_second_reassignment_keeps_a_replica_of_the_first_that_is_in_sync(conversation: Conversation) -> None:
    """It has acknowledged records, perhaps as one of two; it leaves with the others at the end."""
    reassign(conversation, (3, 4, 5))
    conversation.propose(0, (0, 1, 2, 3))
    reassign(conversation, (4, 1, 2))
    partition = conversation.partition()
    assert (partition.replicas, partition.isr) == ((4, 1, 2, 3, 0), (0, 1, 2, 3))
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 3), (3, 0))
    conversation.propose(0, (0, 1, 2, 3, 4))
    partition = conversation.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 1, 2), (1, 2, 4), 4)


def test_second_reassignment_back_is_over_at_once(conversation: Conversation) -> None:
    """To name the old replicas is to call it off."""
    reassign(conversation, (3, 4, 5))
    reassign(conversation, (0, 1, 2))
    partition = conversation.partition()
    assert (partition.replicas, partition.is_reassigning) == ((0, 1, 2), False)


@pytest.mark.parametrize(
    ("target", "fields", "error_code"),
    [
        ((), {}, ErrorCode.invalid_replica_assignment),
        ((3, 3), {}, ErrorCode.invalid_replica_assignment),
        ((3, 9), {}, ErrorCode.invalid_replica_assignment),
        ((-1, 3), {}, ErrorCode.invalid_replica_assignment),
        ((3, 4), {"allow_replication_factor_change": False}, ErrorCode.invalid_replication_factor),
        ((3, 4, 5), {"number": 7}, ErrorCode.unknown_topic_or_partition),
        ((3, 4, 5), {"number": -1}, ErrorCode.unknown_topic_or_partition),
        ((3, 4, 5), {"topic": "nobody"}, ErrorCode.unknown_topic_or_partition),
        (None, {"topic": "nobody"}, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_impossible_reassignment_is_refused(
    conversation: Conversation, target: tuple[int, ...] | None, fields: Any, error_code: ErrorCode
) -> None:
    """With the error that Kafka gives, and nothing changed."""
    decision = conversation.say(request(target, **fields))
    assert (error_of(decision), decision.records) == (error_code, [])


def test_replication_factor_that_must_not_change_is_that_of_the_target(conversation: Conversation) -> None:
    """While two replicas are being exchanged there are five of them."""
    reassign(conversation, (3, 4, 2))
    reassign(conversation, (3, 5, 2), allow_replication_factor_change=False)
    assert conversation.partition().target_replicas == (3, 5, 2)


def test_added_replica_of_a_broker_with_several_directories_is_placed_by_it() -> None:
    """Only the broker knows which of them has room (KIP-858)."""
    conversation = Conversation().start(0)
    conversation.say(registration(1, directories=(directory_of(1), directory_of(2))))
    conversation.heartbeat(1)
    conversation.create(creatable("t", assignments={0: (0,)}))
    reassign(conversation, (1,))
    assert conversation.partition().directories == (UNASSIGNED_DIRECTORY, directory_of(0))


def test_partitions_that_a_moving_topic_gets_have_the_replication_factor_of_the_target(
    conversation: Conversation,
) -> None:
    """Not that of the replicas which are there in between."""
    reassign(conversation, (3, 4, 5))
    topic = CreatePartitionsTopic(name="t", count=2, assignments=None)
    conversation.say(
        CreatePartitionsRequest(topics=(topic,), timeout=timedelta(seconds=1), validate_only=False)
    )
    assert len(conversation.partition(1).replicas) == 3


def test_deleted_topic_takes_its_reassignment_with_it(conversation: Conversation) -> None:
    """A topic of the same name that is made later is not moved."""
    reassign(conversation, (3, 4, 5))
    topic = DeleteTopicState(name="t", topic_id=None)
    conversation.say(DeleteTopicsRequest(topics=(topic,), timeout=timedelta(seconds=1)))
    assert error_of(conversation.say(request(None))) is ErrorCode.unknown_topic_or_partition
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    assert error_of(conversation.say(request(None))) is ErrorCode.no_reassignment_in_progress


def test_partition_named_twice_goes_where_it_is_named_last(conversation: Conversation) -> None:
    """Each is decided on top of the one before it, whichever parts of the request they are in."""
    partitions = tuple(ReassignablePartition(partition_index=0, replicas=each) for each in ((3, 4, 5), None))
    conversation.say(
        AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name="t", partitions=partitions),))
    )
    assert conversation.partition().replicas == (0, 1, 2)


def test_many_partitions_are_reassigned_part_by_part_and_answered_together() -> None:
    """Ten thousand in one decision would hold the loop, and with it every broker's lease."""
    count = 2 * TOPICS_PER_PART + 7
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments=dict.fromkeys(range(count), (0,))))
    partitions = tuple(
        ReassignablePartition(partition_index=number, replicas=(1,)) for number in range(count + 1)
    )
    whole = AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name="t", partitions=partitions),))
    division = ALTER_PARTITION_REASSIGNMENTS.parts
    assert division is not None
    parts = in_one_go(parts_of(whole, division))
    assert [len(part.topics[0].partitions) for part in parts] == [TOPICS_PER_PART, TOPICS_PER_PART, 8]
    reply = in_one_go(joined(division, [conversation.say(part).reply for part in parts]))
    answers = [answer for topic in reply.responses for answer in topic.partitions]
    assert [answer.partition_index for answer in answers] == list(range(count + 1))
    assert {answer.error_code for answer in answers[:-1]} == {ErrorCode.none}
    assert answers[-1].error_code is ErrorCode.unknown_topic_or_partition
    assert all(conversation.partition(number).is_reassigning for number in range(count))


def test_replicas_that_are_being_added_make_no_eligible_leaders(conversation: Conversation) -> None:
    """A leader alone commits by itself while others are only being added; who fell behind misses records."""
    conversation.create(creatable("two", assignments={0: (0,)}, configs={"min.insync.replicas": "2"}))
    conversation.say(request((0, 1, 2), topic="two"))
    partition = conversation.partition(name="two")
    rules = IsrRules(unclean_election=False, min_in_sync_replicas=2, eligible_leader_replicas=True)
    joined_and_left = replace(partition, isr=(0, 1))
    record = change_partition(
        joined_and_left, conversation.topic_id("two"), 0, lambda _: True, rules, Election.ONLINE, isr=(0,)
    )
    assert record is not None
    assert (record.isr, record.eligible_leader_replicas) == ((0,), None)


def test_reassignment_ends_with_the_election_of_its_whole_target(conversation: Conversation) -> None:
    """The replica that leaves may be gone for good, so that nothing else would ever change."""
    conversation.propose(0, (0, 1))
    kill(conversation, 1, 0)
    conversation.say(registration(0, incarnation=2, previous_broker_epoch=conversation.epoch(0)))
    assert conversation.partition().elr == (0, 1)
    reassign(conversation, (0,), allow_replication_factor_change=True)
    assert conversation.partition().is_reassigning
    conversation.heartbeat(0)
    partition = conversation.partition()
    assert (partition.leader, partition.isr, partition.elr) == (0, (0,), ())
    assert (partition.replicas, partition.is_reassigning) == ((0,), False)


def test_partitions_that_are_refused_together_are_one_line_of_the_log(
    conversation: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may ask for a million partitions of topics that do not exist."""
    caplog.set_level(logging.INFO)
    unknown = tuple(ReassignablePartition(partition_index=number, replicas=(0,)) for number in range(100))
    conversation.say(
        AlterPartitionReassignmentsRequest(
            timeout=timedelta(seconds=1), topics=(ReassignableTopic(name="unknown", partitions=unknown),)
        )
    )
    lines = [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("100 partitions are not reassigned, the first is unknown-0: ")
