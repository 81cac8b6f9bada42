"""A producer that is called now and then, with brokers on loopback."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from kio.schema.init_producer_id.v4 import response as initialized

from sparklog.node.clocks import monotonic_ms
from sparklog.node.serving.requests import Api, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import BrokerId
from sparklog.user.client import producer as producer_module
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ProducerConfig
from sparklog.user.client.errors import DeliveryError
from sparklog.user.client.producer import Producer, ProducerIdentity
from tests.unit.sparklog.user.client.brokers import FIRST, Brokers, with_brokers, with_client

CONFIG = ProducerConfig(idempotent=False, delivery_timeout_ms=60_000)


class Appended(NamedTuple):
    """What brokers go by of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class BrokersThatNameProducers(Brokers):
    """They give producer ids, and note as whom each batch was written."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster_id = "c"
        self.producer_count = 0
        self.batches: list[Appended] = []

    def apis(self, broker_id: BrokerId) -> dict[ApiKey, Api]:
        return super().apis(broker_id) | {ApiKey.INIT_PRODUCER_ID: Api(4, 4, self._initialize)}

    def _metadata(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        answer = super()._metadata(broker_id)
        return lambda request: replace(answer(request), cluster_id=self.cluster_id)

    def _initialize(self, request: Request) -> initialized.InitProducerIdResponse:
        self.producer_count += 1
        return initialized.InitProducerIdResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            producer_id=self.producer_count,
            producer_epoch=0,
        )

    def _appended(self, broker_id: BrokerId, data: Any) -> dict[str, Any]:
        header = read_header(data.records)
        self.batches.append(Appended(header.producer_id, header.producer_epoch, header.base_sequence))
        return super()._appended(broker_id, data)


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


def test_producer_goes_on_as_another_one_while_there_are_epochs_left() -> None:
    """Its sequences begin anew with each; of the last epoch no next one can be told."""

    def use(brokers: Brokers) -> None:
        with brokers.client() as client:
            for last_epoch, begun in ((32_766, (9, 32_767)), (32_767, (1, 0))):
                producer = Producer(client, ProducerConfig())
                producer.start(ProducerIdentity("c", 9, last_epoch))
                assert (producer.producer_id, producer.producer_epoch) == begun
                assert producer.next_sequence(FIRST) == 0
                assert producer.identity == ProducerIdentity("c", *begun)

    with_brokers(use, BrokersThatNameProducers())


def test_producer_without_sequences_has_no_identity() -> None:
    """There is nobody to go on as."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        producer = Producer(client, CONFIG)
        producer.start(ProducerIdentity("c", 9, 0))
        assert (producer.producer_id, producer.identity) == (None, None)

    with_client(use)
