"""A producer that is called now and then, with brokers on loopback."""

import random
from dataclasses import replace

import pytest

from sparklog.client import producer as producer_module
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.config import ProducerConfig
from sparklog.client.errors import DeliveryError
from sparklog.client.producer import Producer
from sparklog.clocks import monotonic_ms
from sparklog.errors import ErrorCode
from sparklog.records.batch import read_header
from sparklog.records.builder import SimpleRecord, build_batch, read_records
from sparklog.records.codecs import Codec
from tests.unit.sparklog.client.brokers import FIRST, Brokers, with_client

CONFIG = ProducerConfig(idempotent=False, delivery_timeout_ms=60_000)


class Clock:
    """Tells the time, with what was skipped of it."""

    skipped_ms = 0

    def now_ms(self) -> int:
        return monotonic_ms() + self.skipped_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(producer_module, "monotonic_ms", clock.now_ms)
    return clock


def test_rows_may_come_more_slowly_than_batches_have_to_be_acknowledged(clock: Clock) -> None:
    """Answers lay in the socket, and a task whose rows took two minutes failed as often as it was tried."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        producer = Producer(client, CONFIG)
        clock.skipped_ms += 3_600_000
        for _ in range(3):
            producer.send(FIRST, b"a batch", 1)
            producer.send(FIRST, b"another", 1)
            clock.skipped_ms += 3_600_000
        producer.flush()
        assert producer.acknowledged == {FIRST: 6}

    with_client(use)


def test_batch_that_nobody_acknowledges_fails_in_the_time_that_is_waited() -> None:
    """Whoever waits does so no longer than delivery.timeout.ms."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        producer = Producer(client, replace(CONFIG, delivery_timeout_ms=300))
        brokers.die(0)
        producer.send(FIRST, b"a batch", 1)
        with pytest.raises(DeliveryError, match="not acknowledged within 300 ms"):
            producer.flush()

    with_client(use)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batches_that_are_too_large_for_their_topic_go_in_smaller_ones_in_order(codec: Codec) -> None:
    """A topic with a small max.message.bytes takes the records; no record is too large for it."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.largest_batch_bytes = 2_000
        producer = Producer(client, ProducerConfig(batch_size_bytes=20_000))
        producer.producer_id, producer.producer_epoch = 7, 0
        records = [SimpleRecord(key=b"%d" % number, value=random.randbytes(100)) for number in range(500)]
        for start in range(0, 500, 50):
            batch = build_batch(
                records[start : start + 50],
                producer_id=7,
                producer_epoch=0,
                base_sequence=producer.next_sequence(FIRST),
                codec=codec,
            )
            producer.send(FIRST, batch, 50)
        producer.flush()
        assert producer.acknowledged == {FIRST: 500}
        assert producer.batch_size_bytes(FIRST.topic) <= 2_000
        found = [record for each in brokers.appended for record in read_records(each, read_header(each))]
        assert [record.key for record in found] == [record.key for record in records]
        assert [record.value for record in found] == [record.value for record in records]

    with_client(use)


def test_one_record_that_is_too_large_fails() -> None:
    """There is nothing to leave out of its batch."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.largest_batch_bytes = 50
        producer = Producer(client, ProducerConfig())
        producer.producer_id, producer.producer_epoch = 7, 0
        records = [SimpleRecord(value=bytes(100))] * 3
        with pytest.raises(DeliveryError) as raised:
            producer.send(
                FIRST, build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0), len(records)
            )
            producer.flush()
        assert raised.value.error_code is ErrorCode.message_too_large

    with_client(use)
