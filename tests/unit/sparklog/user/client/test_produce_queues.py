"""What is in flight, what is sent again and in which order, without a broker or a clock."""

import pytest

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.produce_queues import PendingBatch, ProduceQueues

FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)
DEADLINE_MS = 120_000


class Sender:
    """Takes batches for broker 1, which leads everything."""

    def __init__(self, *batches: tuple[TopicPartition, int]) -> None:
        self.queues = ProduceQueues(ExponentialBackoff(first_ms=100, max_ms=1_000, even_pauses=10))
        for topic_partition, sequence in batches:
            self.queues.add(PendingBatch(topic_partition, b"x" * 100, 10, sequence, DEADLINE_MS))

    def take(self, now_ms: int = 0, max_request_bytes: int = 1_000) -> list[PendingBatch]:
        return self.queues.take(1, lambda _: 1, max_request_bytes=max_request_bytes, now_ms=now_ms)

    def take_sequences(self, now_ms: int = 0) -> list[tuple[TopicPartition, int]]:
        return [(batch.topic_partition, batch.base_sequence) for batch in self.take(now_ms)]

    def known_to_leaders(self) -> "Sender":
        """Acknowledge each partition's first batch."""
        for batch in self.take():
            self.queues.acknowledge(batch)
        return self


def test_take_gives_one_batch_a_partition_in_order() -> None:
    """A produce request holds one batch of a partition, and sequences go out in order."""
    sender = Sender((FIRST, 0), (FIRST, 10), (FIRST, 20), (SECOND, 0), (SECOND, 10)).known_to_leaders()
    assert sender.take_sequences() == [(FIRST, 10), (SECOND, 10)]
    assert sender.take_sequences() == [(FIRST, 20)]
    assert sender.take_sequences() == []


def test_take_waits_for_the_first_acknowledgement() -> None:
    """A leader takes any first sequence: a second batch could pass where the first one failed."""
    sender = Sender((FIRST, 0), (FIRST, 10))
    (first,) = sender.take()
    assert sender.take() == []
    sender.queues.acknowledge(first)
    assert sender.take_sequences() == [(FIRST, 10)]


def test_take_keeps_to_the_request_size() -> None:
    """A request does not exceed max.request.size for the sake of a second partition."""
    sender = Sender((FIRST, 0), (SECOND, 0))
    assert len(sender.take(max_request_bytes=150)) == 1
    assert len(sender.take(max_request_bytes=50)) == 1


def test_take_lets_partitions_take_turns() -> None:
    """Those that were written to first kept the others waiting until their time was up."""
    sender = Sender(*((each, sequence) for sequence in (0, 10, 20) for each in (FIRST, SECOND)))
    taken = []
    for _ in range(6):
        (batch,) = sender.take(max_request_bytes=150)
        sender.queues.acknowledge(batch)
        taken.append((batch.topic_partition, batch.base_sequence))
    assert taken == [(each, sequence) for sequence in (0, 10, 20) for each in (FIRST, SECOND)]


def test_take_stops_at_five_in_flight_a_partition() -> None:
    """A leader remembers five batches of a producer: a sixth could not be told from a repetition."""
    sender = Sender(*((FIRST, sequence) for sequence in range(0, 80, 10))).known_to_leaders()
    taken = [sender.take()[0] for _ in range(5)]
    assert sender.take() == []
    sender.queues.acknowledge(taken[0])
    assert sender.take_sequences() == [(FIRST, 60)]


def test_take_for_another_leader_gives_nothing() -> None:
    """A batch goes to the leader of its partition."""
    sender = Sender((FIRST, 0))
    assert sender.queues.take(2, lambda _: 1, max_request_bytes=1_000, now_ms=0) == []


def test_retry_starts_over_with_the_oldest_once_nothing_is_in_flight() -> None:
    """The order of sequences survives a change of leader with several batches on their way."""
    sender = Sender(*((FIRST, sequence) for sequence in (0, 10, 20, 30))).known_to_leaders()
    one, two = sender.take()[0], sender.take()[0]
    assert sender.queues.reject(one, ErrorCode.not_leader_or_follower, None, now_ms=0).retry
    assert sender.take(now_ms=5_000) == [], "the second is still on its way"
    assert sender.queues.reject(two, ErrorCode.out_of_order_sequence_number, None, now_ms=50).retry
    assert sender.queues.earliest_release_ms() == 100
    assert sender.take(now_ms=99) == []
    assert sender.take_sequences(now_ms=100) == [(FIRST, 10)]
    assert sender.take_sequences(now_ms=100) == [(FIRST, 20)]
    assert sender.take_sequences(now_ms=100) == [(FIRST, 30)]


def test_retry_after_a_lost_connection_sends_the_same_sequences() -> None:
    """The broker may have the batch; only the same sequence lets it say so."""
    sender = Sender((FIRST, 0), (FIRST, 10), (FIRST, 20)).known_to_leaders()
    for batch in (sender.take()[0], sender.take()[0]):
        sender.queues.hold_back(batch, now_ms=0)
    assert sender.take_sequences(now_ms=100) == [(FIRST, 10)]


def test_retry_pauses_are_even_at_first_and_grow_until_an_acknowledgement() -> None:
    """An election takes less than a few pauses; a cluster in trouble is not hammered."""
    sender = Sender((FIRST, 0), (FIRST, 10))
    now_ms = 0
    for expected_pause_ms in (0, *[100] * 9, 200, 400, 800, 1_000, 1_000):
        sender.queues.hold_back(sender.take(now_ms)[0], now_ms)
        assert sender.queues.earliest_release_ms() == now_ms + expected_pause_ms
        now_ms += expected_pause_ms
    sender.queues.acknowledge(sender.take(now_ms)[0])
    sender.queues.hold_back(sender.take(now_ms)[0], now_ms)
    assert sender.queues.earliest_release_ms() == now_ms


def test_partition_whose_refusal_named_the_leader_is_sent_without_a_pause_and_without_asking() -> None:
    """KIP-951: what the old leader says is news, and a pause would be all that the failover costs."""
    sender = Sender(*((FIRST, sequence) for sequence in (0, 10, 20))).known_to_leaders()
    one, two = sender.take()[0], sender.take()[0]
    refusal = ErrorCode.not_leader_or_follower
    assert sender.queues.reject(one, refusal, None, now_ms=50, leader_named=True).retry
    assert sender.take(now_ms=50) == [], "the second is still on its way"
    assert sender.queues.reject(two, refusal, None, now_ms=51, leader_named=True).retry
    (again,) = sender.take(now_ms=51)
    assert (again.base_sequence, sender.queues.retried_ms(FIRST)) == (10, None)
    sender.queues.reject(again, refusal, None, now_ms=60)
    assert sender.queues.earliest_release_ms() == 160, "the next one says nothing new"


def test_partition_is_retried_from_the_release_until_an_acknowledgement() -> None:
    """What was known of its leader before the pause is what failed: it is to be asked for anew."""
    sender = Sender((FIRST, 0))
    assert sender.queues.retried_ms(FIRST) is None
    sender.queues.hold_back(sender.take()[0], now_ms=0)
    assert sender.queues.retried_ms(FIRST) is None
    (again,) = sender.take(now_ms=103)
    assert sender.queues.retried_ms(FIRST) == 103
    sender.queues.acknowledge(again)
    assert sender.queues.retried_ms(FIRST) is None


def test_leader_of_a_partition_that_is_held_back_is_not_asked_for() -> None:
    """Asking costs a request, and its answer would be stale when the pause is over."""
    sender = Sender((FIRST, 0), (SECOND, 0))
    sender.queues.postpone(FIRST, now_ms=0)
    asked: list[TopicPartition] = []

    def leader_of(topic_partition: TopicPartition) -> int:
        asked.append(topic_partition)
        return 1

    sender.queues.take(1, leader_of, max_request_bytes=1_000, now_ms=0)
    assert asked == [SECOND]


def test_reject_of_the_oldest_batch_as_out_of_order_is_final() -> None:
    """Nothing before it is missing here, so the leader has lost what was acknowledged."""
    sender = Sender((FIRST, 30))
    verdict = sender.queues.reject(sender.take()[0], ErrorCode.out_of_order_sequence_number, None, now_ms=0)
    assert not verdict.retry
    assert verdict.reason is not None
    assert "acknowledged before" in verdict.reason


@pytest.mark.parametrize(
    "error_code", [ErrorCode.message_too_large, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_record]
)
def test_reject_for_good_gives_the_brokers_reason(error_code: ErrorCode) -> None:
    """What trying again cannot cure is reported at once."""
    sender = Sender((FIRST, 0))
    verdict = sender.queues.reject(sender.take()[0], error_code, "because", now_ms=0)
    assert verdict.reason == "because"


def test_other_partitions_go_on_while_one_is_held_back() -> None:
    """One leaderless partition does not stop a write to the others."""
    sender = Sender((FIRST, 0), (SECOND, 0))
    sender.queues.postpone(FIRST, now_ms=0)
    assert list(sender.queues.sendable(now_ms=0)) == [SECOND]
    assert sender.take_sequences() == [(SECOND, 0)]


def test_pending_bytes_and_overdue_follow_acknowledgements() -> None:
    """The buffer's bound and the delivery timeout count what is not acknowledged."""
    sender = Sender((FIRST, 0), (FIRST, 10))
    assert (len(sender.queues), sender.queues.pending_bytes) == (2, 200)
    sender.queues.acknowledge(sender.take()[0])
    assert (len(sender.queues), sender.queues.pending_bytes) == (1, 100)
    assert sender.queues.overdue(DEADLINE_MS - 1) is None
    overdue = sender.queues.overdue(DEADLINE_MS)
    assert overdue is not None
    assert overdue.base_sequence == 10
