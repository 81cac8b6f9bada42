"""AlterPartition: who may change an ISR, and to what."""

from typing import Any
from uuid import UUID

import pytest

from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of, registration


@pytest.fixture
def conversation() -> Conversation:
    """Three brokers and a partition with all of them in sync, led by broker 0."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    return conversation


def error_of(reply: Any) -> ErrorCode:
    """Return the error of the only partition."""
    assert reply.error_code is ErrorCode.none
    return ErrorCode(reply.topics[0].partitions[0].error_code)


def test_shrink_raises_partition_epoch_only(conversation: Conversation) -> None:
    """A follower that leaves the ISR changes nothing about who leads."""
    decision = conversation.propose(0, (0, 1))
    assert decision.records == [
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), isr=(0, 1))
    ]
    answer = decision.reply.topics[0].partitions[0]
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (
        ErrorCode.none,
        (0, 1),
        0,
        1,
    )


def test_unchanged_isr_makes_no_record(conversation: Conversation) -> None:
    """A retry whose first answer was lost must not raise the partition epoch once more."""
    assert conversation.propose(0, (0, 1, 2)).records == []


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"leader_epoch": 1}, ErrorCode.not_controller),
        ({"partition_epoch": 9}, ErrorCode.not_controller),
        ({"leader_epoch": -1}, ErrorCode.fenced_leader_epoch),
        ({"partition_epoch": -1}, ErrorCode.invalid_update_version),
        ({"partition_index": 5}, ErrorCode.unknown_topic_or_partition),
        ({"topic_id": UUID(int=4711)}, ErrorCode.unknown_topic_id),
        ({"topic_id": None}, ErrorCode.unknown_topic_id),
        ({"leader_recovery_state": 1}, ErrorCode.invalid_request),
        ({"leader_recovery_state": 5}, ErrorCode.invalid_request),
        ({"broker_epochs": {1: 1}}, ErrorCode.ineligible_replica),
    ],
)
def test_stale_or_impossible_proposal_is_refused(
    conversation: Conversation, changes: dict[str, Any], error_code: ErrorCode
) -> None:
    """Each check keeps out one way in which two leaders could disagree about the ISR."""
    decision = conversation.propose(0, (0, 1), **changes)
    assert decision.records == []
    assert error_of(decision.reply) is error_code


@pytest.mark.parametrize("isr", [(1, 2), (0, 0), ()])
def test_proposed_isr_not_of_replicas_with_leader_is_refused(
    conversation: Conversation, isr: tuple[int, ...]
) -> None:
    """An ISR without its leader, or with strangers, cannot be right."""
    assert error_of(conversation.propose(0, isr).reply) is ErrorCode.invalid_request


def test_proposal_of_follower_is_refused(conversation: Conversation) -> None:
    """Only the leader knows who has caught up."""
    assert error_of(conversation.propose(1, (0, 1)).reply) is ErrorCode.invalid_request


def test_proposal_with_old_broker_epoch_is_refused_whole(conversation: Conversation) -> None:
    """A zombie leader of an earlier registration has no say."""
    decision = conversation.propose(0, (0, 1), broker_epoch=0)
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.stale_broker_epoch)


def test_fenced_broker_cannot_join(conversation: Conversation) -> None:
    """A fenced broker in the ISR would be waited for although it is gone."""
    conversation.take(conversation.controller.broker_gone(2, conversation.epoch(2)))
    assert error_of(conversation.propose(0, (0, 1, 2)).reply) is ErrorCode.ineligible_replica


def test_broker_in_controlled_shutdown_cannot_join(conversation: Conversation) -> None:
    """It is about to leave, and waits only for another to lead what it led."""
    conversation.create(creatable("u", assignments={0: (2, 0)}))
    assert not conversation.heartbeat(2, want_shut_down=True).reply.should_shut_down
    assert error_of(conversation.propose(0, (0, 1, 2)).reply) is ErrorCode.ineligible_replica


def test_restarted_broker_cannot_join_by_what_its_last_life_had(conversation: Conversation) -> None:
    """KIP-903: the leader saw the old process catch up; the new one may have lost the log's end."""
    old_epoch = conversation.epoch(2)
    conversation.take(conversation.controller.broker_gone(2, old_epoch))
    conversation.say(registration(2, incarnation=2))
    conversation.heartbeat(2)
    decision = conversation.propose(0, (0, 1, 2), broker_epochs={2: old_epoch})
    assert error_of(decision.reply) is ErrorCode.ineligible_replica
    assert conversation.propose(0, (0, 1, 2)).records == [
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), isr=(0, 1, 2))
    ]


def test_broker_with_new_directory_joins_with_it(conversation: Conversation) -> None:
    """From then on its log is there, and it may lead again."""
    conversation.take(conversation.controller.broker_gone(2, conversation.epoch(2)))
    new_directory = UUID(int=9999)
    conversation.say(registration(2, incarnation=2, directories=(new_directory,)))
    conversation.heartbeat(2)
    assert conversation.propose(0, (0, 1, 2)).records == [
        PartitionChangeRecord(
            partition_id=0,
            topic_id=conversation.topic_id(),
            isr=(0, 1, 2),
            directories=(directory_of(0), directory_of(1), new_directory),
        )
    ]
    for broker_id in (0, 1):
        conversation.take(conversation.controller.broker_gone(broker_id, conversation.epoch(broker_id)))
    assert conversation.partition().leader == 2


def test_leader_recovered_from_unclean_election_says_so(conversation: Conversation) -> None:
    """KIP-704: the mark of an unclean election goes when the leader has recovered, not before."""
    conversation = Conversation(unclean_leader_election_enable="true").start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.propose(0, (0,))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    assert error_of(conversation.propose(1, (1,)).reply) is ErrorCode.none
    assert conversation.propose(1, (1,), leader_recovery_state=0).records == [
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), leader_recovery_state=0)
    ]
