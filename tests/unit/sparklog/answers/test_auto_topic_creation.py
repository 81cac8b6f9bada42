"""Which topics are asked for because clients have asked for their metadata, and when again."""

from kio.schema.create_topics.v7.request import CreateTopicsRequest

from sparklog.answers.auto_topic_creation import AutoCreatedTopics
from sparklog.config import BrokerConfig


def names_in(request: CreateTopicsRequest | None) -> list[str]:
    return [] if request is None else [topic.name for topic in request.topics]


def test_auto_created_topics_under_way_are_not_asked_for_again() -> None:
    """Every client of a new topic asks for it, several times a second."""
    topics = AutoCreatedTopics(10, BrokerConfig())
    first = topics.request_for(["a", "b", "a"])
    assert first is not None
    assert names_in(first) == ["a", "b"]
    assert names_in(topics.request_for(["b", "c"])) == ["c"]
    topics.answered(first)
    assert names_in(topics.request_for(["a", "c"])) == ["a"]


def test_auto_created_topics_are_bounded_until_answers_come() -> None:
    """A client that invents names must not fill the memory of whoever it asks."""
    topics = AutoCreatedTopics(2, BrokerConfig())
    first = topics.request_for(["a", "b", "c"])
    assert first is not None
    assert names_in(first) == ["a", "b"]
    assert topics.request_for(["c"]) is None
    topics.answered(first)
    assert names_in(topics.request_for(["c"])) == ["c"]
