"""Topics: created, extended and deleted by batches of records, or refused by name."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.create_partitions.v3 import CreatePartitionsRequest
from kio.schema.create_partitions.v3.request import CreatePartitionsAssignment, CreatePartitionsTopic
from kio.schema.delete_topics.v6 import DeleteTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicState

from sparklog.node.metadata.schemas import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of


def partition_record(number: int, topic_id: UUID, replicas: tuple[int, ...]) -> PartitionRecord:
    """Return the record of a new partition with all replicas in sync."""
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(directory_of(broker_id) for broker_id in replicas),
    )


def extend(conversation: Conversation, count: int, *assignments: tuple[int, ...], name: str = "t") -> Any:
    """Ask for more partitions."""
    return conversation.say(
        CreatePartitionsRequest(
            topics=(
                CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=tuple(CreatePartitionsAssignment(broker_ids=ids) for ids in assignments)
                    or None,
                ),
            ),
            timeout=timedelta(seconds=1),
            validate_only=False,
        )
    )


def delete(conversation: Conversation, *topics: tuple[str | None, UUID | None]) -> Any:
    """Ask for topics to be deleted."""
    return conversation.say(
        DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics),
            timeout=timedelta(seconds=1),
        )
    )


def test_delete_topic_twice_says_nothing_of_whether_it_is_there() -> None:
    """Who may not describe it is told no more than that: a request that makes no sense is refused to all."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", 1, 1))
    topic_id = conversation.topic_id()
    for name in ("t", "nowhere"):
        decision = delete(conversation, (name, None), (name, None))
        assert [row.error_code for row in decision.reply.responses] == [ErrorCode.invalid_request]
        assert decision.records == []
    for wanted_id in (topic_id, UUID(int=404)):
        (row,) = delete(conversation, (None, wanted_id), (None, wanted_id)).reply.responses
        assert row.error_code is ErrorCode.invalid_request


def test_create_topic_is_topic_configs_partitions_in_one_batch() -> None:
    """Kafka's readers expect the records in this order."""
    conversation = Conversation().start(0, 1, 2)
    decision = conversation.create(creatable("t", 2, 3, configs={"retention.ms": "1000"}))
    topic_id = conversation.topic_id()
    assert decision.records == [
        TopicRecord(name="t", topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1000"),
        partition_record(0, topic_id, (0, 1, 2)),
        partition_record(1, topic_id, (1, 2, 0)),
    ]
    result = decision.reply.topics[0]
    assert (result.error_code, result.topic_id) == (ErrorCode.none, topic_id)
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("delete", 5)


def test_create_topic_without_numbers_takes_the_clusters() -> None:
    """-1 is what clients send when their user gave nothing."""
    conversation = Conversation(num_partitions="4", default_replication_factor="2").start(0, 1, 2)
    result = conversation.create(creatable("t")).reply.topics[0]
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_create_topic_validate_only_creates_nothing() -> None:
    """A dry run must not be a run."""
    conversation = Conversation().start(0)
    decision = conversation.create(creatable("t", 2, 1), validate_only=True)
    assert (decision.records, decision.reply.topics[0].error_code) == ([], ErrorCode.none)


def test_create_topic_with_fenced_replica_starts_without_it_in_sync() -> None:
    """A topic can be created while a broker is away; it joins when it is back and has caught up."""
    conversation = Conversation().start(0, 1, 2)
    conversation.take(conversation.controller.broker_gone(1, conversation.epoch(1)))
    conversation.create(creatable("t", 1, 3))
    partition = conversation.partition()
    assert (set(partition.replicas), set(partition.isr)) == ({0, 1, 2}, {0, 2})


def test_create_topic_of_a_coordinator_as_it_makes_it_itself() -> None:
    """Brokers ask for it over a connection like any other; what is compacted is as good as theirs."""
    conversation = Conversation().start(0, 1, 2)
    compacted = {"cleanup.policy": "compact"}
    decision = conversation.create(creatable("__consumer_offsets", 50, 3, configs=compacted))
    assert decision.reply.topics[0].error_code is ErrorCode.none
    assert len(conversation.image.topics.by_name["__consumer_offsets"].partitions) == 50
    decision = conversation.create(creatable("__consumer_offsets", 50, 3, configs=compacted))
    assert decision.reply.topics[0].error_code is ErrorCode.topic_already_exists


@pytest.mark.parametrize(
    ("topic", "error_code"),
    [
        (creatable("bad/name"), ErrorCode.invalid_topic_exception),
        (creatable(""), ErrorCode.invalid_topic_exception),
        (creatable("__cluster_metadata"), ErrorCode.invalid_request),
        (creatable("__consumer_offsets", 50, 1), ErrorCode.invalid_request),
        (creatable("__transaction_state"), ErrorCode.invalid_request),
        (creatable("__share_group_state"), ErrorCode.invalid_request),
        (creatable("__share_group_state", configs={"cleanup.policy": "compact"}), ErrorCode.invalid_request),
        (creatable("__cluster_metadata", configs={"cleanup.policy": "compact"}), ErrorCode.invalid_request),
        (creatable("taken.name"), ErrorCode.topic_already_exists),
        (creatable("taken_name"), ErrorCode.invalid_topic_exception),
        (creatable("t", 1, 0), ErrorCode.invalid_replication_factor),
        (creatable("t", 1, 4), ErrorCode.invalid_replication_factor),
        (creatable("t", 0, 1), ErrorCode.invalid_partitions),
        (creatable("t", 10_001, 1), ErrorCode.policy_violation),
        (creatable("t", configs={"retention.ms": "soon"}), ErrorCode.invalid_config),
        (creatable("t", configs={"no.such.key": "1"}), ErrorCode.invalid_config),
        (creatable("t", configs={"retention.ms": None}), ErrorCode.invalid_config),
        (creatable("t", 1, assignments={0: (0,)}), ErrorCode.invalid_request),
        (creatable("t", assignments={1: (0,)}), ErrorCode.invalid_replica_assignment),
        (creatable("t", assignments={0: (0, 1), 1: (0,)}), ErrorCode.invalid_replica_assignment),
        (creatable("t", assignments={0: (9,)}), ErrorCode.invalid_replica_assignment),
    ],
)
def test_create_topic_impossible_is_refused_and_others_are_not(topic: Any, error_code: ErrorCode) -> None:
    """One bad topic of a request must neither be created in part nor take the good ones with it."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("taken.name"))
    decision = (
        conversation.create(topic, creatable("good"))
        if error_code is not ErrorCode.policy_violation
        else None
    )
    if decision is None:
        decision = conversation.create(topic)
        assert decision.records == []
    else:
        assert [record.name for record in decision.records if isinstance(record, TopicRecord)] == ["good"]
    assert decision.reply.topics[0].error_code is error_code
    assert decision.reply.topics[0].error_message


def test_create_topic_twice_in_one_request_is_refused() -> None:
    """Which of the two would be meant?"""
    decision = Conversation().start(0).create(creatable("t", 1, 1), creatable("t", 2, 1))
    assert decision.records == []
    assert [result.error_code for result in decision.reply.topics] == [ErrorCode.invalid_request]


def test_create_topics_colliding_in_one_request_second_is_refused() -> None:
    """Names that differ only in . and _ collide in metrics, also when both are new."""
    decision = Conversation().start(0).create(creatable("a.b", 1, 1), creatable("a_b", 1, 1))
    assert [result.error_code for result in decision.reply.topics] == [
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
    ]


def test_create_partitions_adds_the_missing_ones() -> None:
    """The old partitions stay as they are."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("t", 1, 2))
    decision = extend(conversation, 3)
    topic_id = conversation.topic_id()
    assert decision.reply.results[0].error_code is ErrorCode.none
    assert decision.records == [
        partition_record(1, topic_id, (1, 2)),
        partition_record(2, topic_id, (2, 0)),
    ]


@pytest.mark.parametrize(
    ("count", "assignments", "error_code"),
    [
        (1, (), ErrorCode.invalid_partitions),
        (0, (), ErrorCode.invalid_partitions),
        (20_000, (), ErrorCode.policy_violation),
        (3, ((0, 1),), ErrorCode.invalid_replica_assignment),
        (2, ((0,),), ErrorCode.invalid_replica_assignment),
        (2, ((0, 7),), ErrorCode.invalid_replica_assignment),
    ],
)
def test_create_partitions_impossible_is_refused(
    count: int, assignments: tuple[tuple[int, ...], ...], error_code: ErrorCode
) -> None:
    """A topic never shrinks, and all its partitions have one replication factor."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("t", 1, 2))
    decision = extend(conversation, count, *assignments)
    assert (decision.records, decision.reply.results[0].error_code) == ([], error_code)


def test_create_partitions_of_unknown_topic_is_refused() -> None:
    """The name may be a typing error."""
    decision = extend(Conversation().start(0), 2, name="missing")
    assert decision.reply.results[0].error_code is ErrorCode.unknown_topic_or_partition


def test_delete_topic_by_name_and_by_id() -> None:
    """Both ways lead to the same record, and the name is free again."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", 1, 1), creatable("u", 1, 1))
    ids = conversation.topic_id("t"), conversation.topic_id("u")
    decision = delete(conversation, ("t", None), (None, ids[1]))
    assert decision.records == [RemoveTopicRecord(topic_id=topic_id) for topic_id in ids]
    assert [(result.name, result.topic_id) for result in decision.reply.responses] == [
        ("t", ids[0]),
        ("u", ids[1]),
    ]
    conversation.create(creatable("t", 1, 1))
    assert conversation.topic_id("t") not in ids


@pytest.mark.parametrize(
    ("topics", "error_code"),
    [
        ([("missing", None)], ErrorCode.unknown_topic_or_partition),
        ([(None, UUID(int=4711))], ErrorCode.unknown_topic_id),
        ([(None, None)], ErrorCode.invalid_request),
        ([("t", UUID(int=1001))], ErrorCode.invalid_request),
        ([("t", None), ("t", None)], ErrorCode.invalid_request),
    ],
)
def test_delete_topic_unclear_is_refused(
    topics: list[tuple[str | None, UUID | None]], error_code: ErrorCode
) -> None:
    """Nothing is deleted unless it is certain what is meant."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", 1, 1))
    decision = delete(conversation, *topics)
    assert (decision.records, decision.reply.responses[0].error_code) == ([], error_code)


def test_delete_topic_disabled_is_refused() -> None:
    """delete.topic.enable=false protects what must not be lost by a slip."""
    conversation = Conversation(delete_topic_enable="false").start(0)
    conversation.create(creatable("t", 1, 1))
    decision = delete(conversation, ("t", None))
    assert decision.reply.responses[0].error_code is ErrorCode.topic_deletion_disabled
