"""Internal topics are made by their owners: what is made otherwise is refused, or removed if it is empty."""

from uuid import UUID

import pytest

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.schemas import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, directory_of
from tests.unit.driver.controller.machine.test_topics import delete, extend

OFFSETS = "__consumer_offsets"
TOPIC_ID = UUID(int=77)


def with_topic(*leaders: int, policy: str | None = None) -> Conversation:
    """Return a cluster that has the topic from an earlier driver, which let clients make it."""
    conversation = Conversation().start(0, 1)
    records: list[MetadataRecord] = [TopicRecord(name=OFFSETS, topic_id=TOPIC_ID)]
    if policy is not None:
        records.append(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=OFFSETS, name="cleanup.policy", value=policy
            )
        )
    records += [
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=(leader, 1 - leader),
            isr=(leader, 1 - leader),
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=(directory_of(leader), directory_of(1 - leader)),
        )
        for number, leader in enumerate(leaders)
    ]
    conversation.take(ControllerResult(records, None))
    return conversation


def tell(conversation: Conversation, **ends: LogPosition) -> list[MetadataRecord]:
    """Let brokers (`b0=EMPTY_LOG`) say how far what they are asked for reaches; return what is decided."""
    records: list[MetadataRecord] = []
    for question in conversation.controller.log_questions(conversation.now_ms):
        end = ends.get(f"b{question.broker_id}")
        positions = {
            (topic, number): end
            for topic, epochs in question.leader_epochs.items()
            for number in epochs
            if end is not None
        }
        decision = conversation.controller.log_question_answered(question, positions, conversation.now_ms)
        records += conversation.take(decision).records
    return records


@pytest.mark.parametrize("policy", [None, "delete"])
def test_internal_topic_made_wrongly_and_empty_is_removed_once_its_leaders_say_so(policy: str | None) -> None:
    """Its coordinator makes it anew, with the partitions that it needs."""
    conversation = with_topic(0, 1, 0, policy=policy)
    asked = conversation.controller.log_questions(conversation.now_ms)
    assert {question.broker_id: question.leader_epochs for question in asked} == {
        0: {OFFSETS: {0: 0, 2: 0}},
        1: {OFFSETS: {1: 0}},
    }
    assert tell(conversation, b0=EMPTY_LOG) == [], "one leader has not answered yet"
    assert tell(conversation, b1=EMPTY_LOG) == [RemoveTopicRecord(topic_id=TOPIC_ID)]
    assert OFFSETS not in conversation.image.topics.by_name
    assert conversation.controller.log_questions(conversation.now_ms) == []


def test_internal_topic_made_wrongly_that_has_had_records_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody may want them; the log says once what to do."""
    conversation = with_topic(0, 1)
    assert tell(conversation, b0=EMPTY_LOG, b1=LogPosition(0, 3)) == []
    assert conversation.tick() == []
    assert OFFSETS in conversation.image.topics.by_name
    assert sum("until it is deleted" in record.getMessage() for record in caplog.records) == 1


def test_internal_topic_as_its_owner_makes_it_is_not_asked_about() -> None:
    """An empty one is how each begins."""
    conversation = with_topic(0, 1, policy="compact")
    assert conversation.controller.log_questions(conversation.now_ms) == []
    assert conversation.tick() == []
    assert OFFSETS in conversation.image.topics.by_name


def test_answer_of_a_leader_that_was_replaced_is_not_counted() -> None:
    """Only who leads is sure to have what is committed."""
    conversation = with_topic(0)
    (question,) = conversation.controller.log_questions(conversation.now_ms)
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    assert conversation.partition(name=OFFSETS).leader == 1
    decision = conversation.controller.log_question_answered(
        question, {(OFFSETS, 0): EMPTY_LOG}, conversation.now_ms
    )
    assert decision.records == []
    assert tell(conversation, b1=EMPTY_LOG) == [RemoveTopicRecord(topic_id=TOPIC_ID)]


def test_internal_topic_gets_no_partitions_but_may_be_deleted() -> None:
    """Its owner finds things by the number of partitions; to delete it is the way out of a wrong one."""
    conversation = with_topic(0, policy="compact")
    result = extend(conversation, 2, name=OFFSETS).reply.results[0]
    assert result.error_code is ErrorCode.invalid_topic_exception
    assert len(conversation.image.topics.by_name[OFFSETS].partitions) == 1
    (response,) = delete(conversation, (OFFSETS, None)).reply.responses
    assert response.error_code is ErrorCode.none
    assert OFFSETS not in conversation.image.topics.by_name
