"""What a broker knows of topics, as one asks who has lost nobody."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import TopicReplacedError
from sparklog.user.client.topic_descriptions import described_leaders
from sparklog.user.client.topic_ids import check_topic_ids
from sparklog.user.client.topics import Leader
from tests.unit.sparklog.user.client.brokers import FIRST, TOPIC_ID, Brokers, with_client


def test_look_at_topics_ids_asks_for_no_metadata() -> None:
    """Brokers hold Metadata back for whoever works already: it cost 10 ms of every micro-batch."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.find_brokers()
        brokers.asked_since()
        check_topic_ids(client, {"t": TOPIC_ID})
        assert brokers.asked_since() == []

    with_client(use)


@pytest.mark.parametrize(("name", "topic_id"), [("t", UUID(int=2)), ("gone", TOPIC_ID)])
def test_topic_that_is_another_or_none_is_told(name: str, topic_id: UUID) -> None:
    """What was written to the one before is missing."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.config = replace(client.config, unknown_topic_timeout_ms=50)
        with pytest.raises(TopicReplacedError, match=f"topic {name} that rows were written to"):
            check_topic_ids(client, {"t": TOPIC_ID, name: topic_id})

    with_client(use)


def test_leaders_of_a_topic_are_told_page_by_page() -> None:
    """A broker tells of so many partitions at a time as it is set to."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        assert described_leaders(client, FIRST.topic) == {0: Leader(0, 1), 1: Leader(1, 1)}
        with pytest.raises(KafkaError) as raised:
            described_leaders(client, "gone")
        assert raised.value.error_code is ErrorCode.unknown_topic_or_partition

    with_client(use)
