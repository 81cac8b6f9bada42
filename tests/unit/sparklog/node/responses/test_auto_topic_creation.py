"""Which topics are asked for because clients have asked for their metadata, and when again."""

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest

from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.node.responses.auto_topic_creation import AutoCreatedTopics


def names_in(request: CreateTopicsRequest | None) -> list[str]:
    return [] if request is None else [topic.name for topic in request.topics]


def test_auto_created_topics_under_way_are_not_asked_for_again() -> None:
    """Every client of a new topic asks for it, several times a second."""
    topics = AutoCreatedTopics(BrokerConfig(), max_topics=10, max_partitions=100)
    first = topics.request_for(["a", "b", "a"])
    assert first is not None
    assert names_in(first) == ["a", "b"]
    assert names_in(topics.request_for(["b", "c"])) == ["c"]
    topics.answered(first)
    assert names_in(topics.request_for(["a", "c"])) == ["a"]


def test_auto_created_topics_are_bounded_until_answers_come() -> None:
    """A client that invents names must not fill the memory of whoever it asks."""
    topics = AutoCreatedTopics(BrokerConfig(), max_topics=2, max_partitions=100)
    first = topics.request_for(["a", "b", "c"])
    assert first is not None
    assert names_in(first) == ["a", "b"]
    assert topics.request_for(["c"]) is None
    topics.answered(first)
    assert names_in(topics.request_for(["c"])) == ["c"]


def test_auto_created_topics_have_no_more_partitions_than_one_request_may_create() -> None:
    """The controller refuses a larger request as a whole, and so again each time that the client asks."""
    config = BrokerConfig.from_mapping({"num.partitions": "40"})
    topics = AutoCreatedTopics(config, max_topics=10, max_partitions=100)
    names = ["a", "b", "c", "d"]
    first = topics.request_for(names)
    assert first is not None
    assert names_in(first) == ["a", "b"]
    assert topics.request_for(names) is None
    topics.answered(first)
    assert names_in(topics.request_for(names[2:])) == ["c", "d"]


def test_auto_created_topic_with_more_partitions_than_are_created_at_a_time_comes_alone() -> None:
    """A topic changes as a whole, so it is created, or refused, by the controller's own limit."""
    config = BrokerConfig.from_mapping({"num.partitions": "101"})
    topics = AutoCreatedTopics(config, max_topics=10, max_partitions=100)
    assert names_in(topics.request_for(["a", "b"])) == ["a"]


@pytest.mark.parametrize(
    ("racks", "replication_factor"),
    [(1, 1), (2, 2), (5, 3)],
)
def test_auto_created_topic_of_a_coordinator_is_as_its_keys_say(racks: int, replication_factor: int) -> None:
    """Its partitions and its compaction can't be put right later; and a small cluster must get one at all."""
    config = BrokerConfig.from_mapping(
        {"offsets.topic.num.partitions": "7", "transaction.state.log.min.isr": "1"}, racks=racks
    )
    names = [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "a"]
    request = AutoCreatedTopics(config, max_topics=10, max_partitions=100).request_for(names)
    assert request is not None
    shown = [
        (
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            {config.name: config.value for config in topic.configs},
        )
        for topic in request.topics
    ]
    assert shown == [
        (
            CONSUMER_OFFSETS_TOPIC,
            7,
            replication_factor,
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
        ),
        (
            TRANSACTION_STATE_TOPIC,
            50,
            replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
        ("a", -1, -1, {}),
    ]
