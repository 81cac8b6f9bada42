"""What a leader's death or deposition costs a task that writes or reads: requests are counted, not time."""

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.config import FetchConfig, ProducerConfig
from sparklog.client.errors import OffsetNotAvailableError, OffsetOutOfRangeError
from sparklog.client.fetching import PartitionFetcher
from sparklog.client.offsets import SpecialOffset, list_offsets
from sparklog.client.producer import Producer
from sparklog.client.topics import Leader
from sparklog.errors import KafkaError
from sparklog.records.builder import SimpleRecord, build_batch
from tests.unit.sparklog.client.brokers import FIRST, SECOND, Brokers, with_brokers

NEVER_MS = 3_600_000
BATCH = build_batch([SimpleRecord(value=b"v")])


def writing(brokers: Brokers, client: ClusterClient) -> Producer:
    """Return a producer whose first batch to the first partition is acknowledged."""
    producer = Producer(client, ProducerConfig(idempotent=False))
    producer.send(FIRST, BATCH, 1)
    producer.flush()
    assert producer.acknowledged[FIRST] == 1
    brokers.asked_since()
    brokers.produced.clear()
    return producer


def test_producer_whose_leader_names_another_sends_there_without_a_pause_and_without_metadata() -> None:
    """KIP-951: a leadership that moves costs a round trip; the pause of this client never ends."""

    def use(brokers: Brokers) -> None:
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            producer = writing(brokers, client)
            brokers.believed = dict(brokers.leaders)
            brokers.leaders[FIRST] = Leader(2, 2)
            producer.send(FIRST, BATCH, 1)
            producer.flush()
            assert producer.acknowledged[FIRST] == 2
            assert (brokers.produced, brokers.asked_since()) == ([0, 2], [])

    with_brokers(use)


def test_producer_whose_leader_dies_asks_another_broker_at_once() -> None:
    """The new leader is there within milliseconds of a death; waiting before asking is all one would see."""

    def use(brokers: Brokers) -> None:
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            producer = writing(brokers, client)
            brokers.leaders[FIRST] = Leader(2, 2)
            brokers.die(0)
            producer.send(FIRST, BATCH, 1)
            producer.flush()
            assert producer.acknowledged[FIRST] == 2
            assert brokers.produced == [2]
            assert len(brokers.asked) == 1
            assert 0 not in brokers.asked

    with_brokers(use)


def test_reader_whose_leader_names_another_fetches_there_without_a_pause_and_without_metadata() -> None:
    """A read goes on where the leadership went, as a write does."""

    def use(brokers: Brokers) -> None:
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            client.leader(FIRST)
            brokers.asked_since()
            brokers.believed = dict(brokers.leaders)
            brokers.leaders[FIRST] = Leader(2, 2)
            brokers.records = BATCH
            fetched = list(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1))
            assert [(bytes(each.records), each.next_offset) for each in fetched] == [(BATCH, 1)]
            assert brokers.asked_since() == []

    with_brokers(use)


def test_reader_whose_leader_dies_asks_another_broker_at_once() -> None:
    """A read that waits at the log's end learns of the death by its connection."""

    def use(brokers: Brokers) -> None:
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            client.channel(client.leader(FIRST).broker_id)
            brokers.asked_since()
            brokers.leaders[FIRST] = Leader(2, 2)
            brokers.records = BATCH
            brokers.die(0)
            fetched = list(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1))
            assert [each.next_offset for each in fetched] == [1]
            assert len(brokers.asked) == 1
            assert 0 not in brokers.asked

    with_brokers(use)


def test_reader_of_what_is_gone_for_good_says_so_and_does_not_wait_for_ever() -> None:
    """A topic made anew may end where a reader begins; its leader answers as if more were to come."""

    def use(brokers: Brokers) -> None:
        brokers.records, brokers.end_offset = b"", 5
        with brokers.client() as client:
            with pytest.raises(OffsetOutOfRangeError) as gone:
                next(iter(PartitionFetcher(client, FetchConfig(poll_timeout_ms=50), FIRST, 5, 9)))
            assert (gone.value.offset, gone.value.log_end_offset) == (5, 5)
            brokers.end_offset = 9
            with pytest.raises(OffsetNotAvailableError):
                next(iter(PartitionFetcher(client, FetchConfig(poll_timeout_ms=50), FIRST, 5, 9)))

    with_brokers(use)


def test_answer_of_one_broker_is_not_taken_for_that_to_the_next_question() -> None:
    """One refused for good, and nobody heard the other, whose answer was the next one's."""

    def use(brokers: Brokers) -> None:
        brokers.end_offset = 100
        brokers.refusing_offsets = {0}
        partitions = (FIRST, SECOND)
        with brokers.client() as client:
            with pytest.raises(KafkaError, match="could not list"):
                list_offsets(client, dict.fromkeys(partitions, SpecialOffset.LATEST))
            brokers.refusing_offsets = set()
            first = list_offsets(client, dict.fromkeys(partitions, SpecialOffset.EARLIEST))
            assert {each: listed.offset for each, listed in first.items()} == {FIRST: 0, SECOND: 0}

    with_brokers(use)
