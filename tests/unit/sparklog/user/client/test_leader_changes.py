"""What a leader's death or deposition costs a task that writes or reads: requests are counted, not time."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.node.serving.requests import Api, Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import BrokerId
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import FetchConfig, ProducerConfig
from sparklog.user.client.errors import OffsetNotAvailableError, OffsetOutOfRangeError, TopicRecreatedError
from sparklog.user.client.fetching import PartitionFetcher
from sparklog.user.client.offsets import SpecialOffset, list_offsets
from sparklog.user.client.producer import Producer
from sparklog.user.client.topics import Leader
from tests.unit.sparklog.user.client.brokers import FIRST, SECOND, TOPIC_ID, Brokers, with_brokers

NEVER_MS = 3_600_000
FORMER = UUID(int=11)
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


def test_reader_asks_again_when_a_broker_that_is_behind_tells_the_id_of_a_former_topic() -> None:
    """One such answer, and all that a task was to read counted as lost, which was there."""

    def use(brokers: Brokers) -> None:
        brokers.told_ids = [FORMER, FORMER, TOPIC_ID]
        brokers.records = BATCH
        with brokers.client() as client:
            fetched = list(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1, topic_id=TOPIC_ID))
            assert [each.next_offset for each in fetched] == [1]

    with_brokers(use)


class LeaderDiesAtTheThirdFetch(Brokers):
    """Its successor has a record, and the metadata is of a former topic at first."""

    def apis(self, broker_id: BrokerId) -> dict[ApiKey, Api]:
        apis = super().apis(broker_id)
        fetch = apis[ApiKey.FETCH].handler

        def answer(request: Request) -> Any:
            if len(self.fetched) == 2:
                self.leaders[FIRST] = Leader(2, 2)
                self.told_ids, self.records = [FORMER, TOPIC_ID], BATCH
                self.closing = asyncio.ensure_future(self.listeners[broker_id].close())
                self.fetched.append(broker_id)
                return Deferred()
            return fetch(request)

        return {**apis, ApiKey.FETCH: apis[ApiKey.FETCH]._replace(handler=answer)}


def test_reader_that_has_waited_for_records_still_asks_again_about_a_topic_of_another_id() -> None:
    """How long who is behind may be believed in vain does not depend on how long the reader waited before."""

    def use(brokers: Brokers) -> None:
        brokers.records = b""
        with brokers.client(retry_backoff_ms=150) as made:
            config = replace(made.config, unknown_topic_timeout_ms=250)
        with ClusterClient(config) as client:
            fetched = list(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1, topic_id=TOPIC_ID))
            assert [each.next_offset for each in fetched] == [1]

    with_brokers(use, LeaderDiesAtTheThirdFetch())


@pytest.mark.parametrize("poll_timeout_ms", [50, 10_000])
def test_reader_of_a_topic_that_was_made_anew_says_so_when_that_is_told_for_a_while(
    poll_timeout_ms: int,
) -> None:
    """Offsets of the former topic mean nothing in it; that is said whichever time is over first."""

    def use(brokers: Brokers) -> None:
        brokers.told_ids = [FORMER]
        config = replace(brokers.client().config, unknown_topic_timeout_ms=200)
        with ClusterClient(config) as client:
            fetcher = PartitionFetcher(
                client, FetchConfig(poll_timeout_ms=poll_timeout_ms), FIRST, 0, 1, topic_id=TOPIC_ID
            )
            with pytest.raises(TopicRecreatedError):
                next(iter(fetcher))
            assert len(brokers.asked) > 1

    with_brokers(use)


def test_reader_above_the_last_stable_offset_does_not_ask_without_a_pause() -> None:
    """Apache Kafka answers such a fetch at once: a task asked thousands of times a second."""

    def use(brokers: Brokers) -> None:
        brokers.records, brokers.end_offset = b"", 9
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            config = FetchConfig(max_wait_ms=200, poll_timeout_ms=500)
            with pytest.raises(OffsetNotAvailableError):
                next(iter(PartitionFetcher(client, config, FIRST, 5, 9)))
            assert 1 < len(brokers.fetched) <= 6, "no pause is longer than what is left of the wait"

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
