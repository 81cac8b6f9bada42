"""A producer that is called now and then, with brokers on loopback."""

from dataclasses import replace

import pytest

from sparklog.client import producer as producer_module
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.config import ProducerConfig
from sparklog.client.errors import DeliveryError
from sparklog.client.producer import Producer
from sparklog.clocks import monotonic_ms
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
