"""Whom a task's client asks for leaders, and when, over real connections to brokers that play dead."""

from datetime import timedelta

from kio.schema.fetch.v16.request import FetchRequest

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import TOPIC_MAX_AGE_MS, ClusterClient
from sparklog.user.client.config import ClientConfig
from sparklog.user.client.topics import Leader
from tests.unit.sparklog.user.client.brokers import FIRST, SECOND, Brokers, with_client


def test_leader_known_from_before_the_retry_is_asked_for_anew() -> None:
    """Other partitions of the topic may have asked while the dead broker was still the leader."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        assert client.leader(FIRST) == Leader(0, 1)
        learned_ms = client.topic("t").learned_ms
        brokers.leaders[FIRST] = Leader(2, 2)
        assert client.leader(FIRST) == Leader(0, 1)
        assert client.leader(FIRST, learned_after_ms=learned_ms) == Leader(0, 1)
        assert client.leader(FIRST, learned_after_ms=learned_ms + 1) == Leader(2, 2)
        assert client.leader(FIRST) == Leader(2, 2)

    with_client(use)


def test_topic_that_was_asked_for_long_ago_is_asked_for_anew() -> None:
    """A process of Spark's lives for days, and the topic may have been made anew, or have more partitions."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        learned_ms = client.topic("t").learned_ms
        brokers.asked_since()
        client.forget_older(TOPIC_MAX_AGE_MS)
        assert client.topic("t").learned_ms == learned_ms and brokers.asked_since() == []
        client.forget_older(-1)
        client.topic("t")
        assert len(brokers.asked_since()) == 1
        client._topics["t"] = client.topic("t")._replace(learned_ms=learned_ms - TOPIC_MAX_AGE_MS)
        client.topic("t")
        assert len(brokers.asked_since()) == 1

    with_client(use)


def test_lost_broker_is_asked_last() -> None:
    """It may be dead, and a dead host refuses nothing: connecting to it takes all the time there is."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.leader(FIRST)
        client.channel(0)
        client.channel(1)
        brokers.asked_since()
        client.disconnect(0)
        client.forget_leader(FIRST)
        client.leader(FIRST)
        client.disconnect(1)
        client.leader(SECOND)
        assert brokers.asked_since() == [1, 2]
        client.channel(0)
        client.forget_leader(FIRST)
        client.leader(FIRST)
        assert 1 not in brokers.asked_since()

    with_client(use)


def test_busy_broker_is_asked_by_another_connection() -> None:
    """Answers come in order, and the leaders are wanted before records are acknowledged."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.leader(FIRST)
        brokers.asked_since()
        busy = client.channel(1)
        busy.send(FetchRequest(max_wait=timedelta(0), min_bytes=1, topics=(), forgotten_topics_data=()))
        client.disconnect(0)
        client.leader(FIRST)
        assert brokers.asked_since() == [1]
        assert client.channel(1) is busy
        assert busy.outstanding == 1

    with_client(use)


def test_leader_named_by_a_refusal_is_known_without_asking() -> None:
    """KIP-951: the broker that was deposed knows its successor, and where to find it."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.leader(FIRST)
        brokers.asked_since()
        moved = {7: ("127.0.0.1", brokers.listeners[2].port)}
        assert client.leader_named(FIRST, Leader(7, 2), moved, refused_by=0)
        assert client.leader(FIRST) == Leader(7, 2)
        assert client.channel(7).peer == f"127.0.0.1:{brokers.listeners[2].port}"
        assert client.leader(SECOND) == Leader(1, 1)
        assert brokers.asked_since() == []

    with_client(use)


def test_leader_named_that_is_nobody_to_turn_to_is_not_taken() -> None:
    """An older leader, one without an address and the refuser itself would be asked in vain, for ever."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.leader(FIRST)
        assert not client.leader_named(FIRST, Leader(2, 1), {}, refused_by=0)
        assert not client.leader_named(FIRST, Leader(7, 2), {}, refused_by=0)
        assert not client.leader_named(FIRST, Leader(-1, -1), {}, refused_by=0)
        assert client.leader(FIRST) == Leader(0, 1)
        assert client.leader_named(FIRST, Leader(2, 2), {}, refused_by=0)
        assert not client.leader_named(FIRST, Leader(0, 1), {}, refused_by=2)
        assert client.leader(FIRST) == Leader(2, 2)
        client.forget_leader(FIRST)
        assert not client.leader_named(FIRST, Leader(1, 3), {}, refused_by=0), "others are asked for as well"

    with_client(use)


def test_metadata_of_a_broker_that_is_behind_does_not_bring_an_old_leader_back() -> None:
    """It would be asked, and would name the new one, for as long as that broker is behind."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.leader(FIRST)
        brokers.believed = dict(brokers.leaders)
        client.leader_named(FIRST, Leader(2, 2), {}, refused_by=0)
        client.forget_leader(FIRST)
        brokers.asked_since()
        assert client.leader(FIRST) == Leader(2, 2)
        assert len(brokers.asked_since()) == 1

    with_client(use)


def test_outdated_topics_are_asked_for_in_one_request() -> None:
    """A broker that dies led some of every topic; one after the other they would be asked for."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        names = {"t", "u", "v"}
        brokers.leaders |= {TopicPartition(name, 0): Leader(0, 1) for name in names}
        for name in sorted(names):
            client.topic(name)
        brokers.asked_for.clear()
        client.disconnect(0)
        for name in sorted(names):
            assert client.leader(TopicPartition(name, 0)) == Leader(0, 1)
        assert brokers.asked_for == [names]

    with_client(use)


def test_topic_that_may_be_created_is_asked_for_without_others_that_may_be_gone() -> None:
    """The broker would create those, too."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.leaders[TopicPartition("u", 0)] = Leader(0, 1)
        client.forget("gone")
        client.topic("u", create=True)
        assert brokers.asked_for == [{"u"}]
        client.topic("t")
        assert brokers.asked_for[1:] == [{"t", "gone"}]

    with_client(use)


def test_end_of_a_transaction_is_asked_after_sooner_than_an_election() -> None:
    """It is a few milliseconds' work, which every batch of a stream waits for; and may yet take long."""
    client = ClusterClient(ClientConfig(bootstrap_servers=(("localhost", 1),)))
    for error_code in (ErrorCode.concurrent_transactions, ErrorCode.unstable_offset_commit):
        pauses_ms = [client.pause_ms(failures, KafkaError(error_code, "")) for failures in range(12)]
        assert sum(pauses_ms[:2]) < client.pause_ms(0, KafkaError(ErrorCode.not_coordinator, ""))
        assert min(pauses_ms[10:]) >= 16
