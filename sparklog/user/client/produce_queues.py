"""Batches of an idempotent producer: which may be sent next, and the consequence of each response. Pure.

The rule it keeps (KIP-98, KIP-185): the batches of a partition are acknowledged in the order of their
sequence numbers, none is abandoned while a later one is sent, and a batch keeps its bytes, hence its
sequence, on every retry. So after a failure a partition is held back until none of its batches is in flight,
and then restarts with its oldest unacknowledged batch; the leader recognises those that it already has. There
is a pause first, but not after the first lost connection, nor if the refusal named another leader. At most
five batches of a partition are in flight, because a leader remembers five; and one until the first is
acknowledged, because a leader accepts any sequence from an unknown producer, so a second batch would pass
where the first failed on a topic that is being created.

Order for callers: `add`, then `take` for each broker that has room, then for each batch taken exactly one of
`acknowledge`, `reject`, `replace` and `hold_back`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, TopicPartition

MAX_IN_FLIGHT_PER_PARTITION: Final = 5

_SENT_BEFORE_ITS_PREDECESSOR: Final = frozenset(
    {ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id}
)


class PendingBatch:
    __slots__ = ("base_sequence", "data", "deadline_ms", "in_flight", "record_count", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        data: bytes,
        record_count: int,
        base_sequence: int | None,
        deadline_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.data = data
        self.record_count = record_count
        self.base_sequence = base_sequence
        self.deadline_ms = deadline_ms
        """End of delivery.timeout.ms, by the clock of `overdue`."""
        self.in_flight = False


class RetryDecision:
    """Decision about a refused batch: retry it, or fail with the reason."""

    __slots__ = ("reason",)

    def __init__(self, reason: str | None) -> None:
        self.reason = reason

    @property
    def retry(self) -> bool:
        return self.reason is None


_RETRY: Final = RetryDecision(None)


class _Queue:
    def __init__(self) -> None:
        self.batches: deque[PendingBatch] = deque()
        self.in_flight = 0
        self.in_flight_limit = 1
        """Raised by the first acknowledgement."""
        self.held_until_ms: int | None = None
        """Set after a failure: nothing is sent before this time."""
        self.leader_named = False
        """Whether it is held back after a refusal that named the leader."""
        self.retried_ms: int | None = None
        """Time of the last retry to an unnamed leader; None after an acknowledgement."""
        self.failures = 0
        """Failures since the last acknowledgement."""

    def next_to_send(self, now_ms: int) -> PendingBatch | None:
        if self.held_until_ms is not None:
            if self.in_flight or now_ms < self.held_until_ms:
                return None
            self.held_until_ms = None
            self.retried_ms = None if self.leader_named else now_ms
        if self.in_flight >= self.in_flight_limit:
            return None
        return next((batch for batch in self.batches if not batch.in_flight), None)


class ProduceQueues:
    def __init__(self, retry_backoff: ExponentialBackoff) -> None:
        self._retry_backoff = retry_backoff
        self._queues: dict[TopicPartition, _Queue] = {}
        self.pending_bytes = 0

    def __len__(self) -> int:
        return sum(len(queue.batches) for queue in self._queues.values())

    def add(self, batch: PendingBatch) -> None:
        """Append a batch; its sequence continues that of the partition's previous batch."""
        self._queues.setdefault(batch.topic_partition, _Queue()).batches.append(batch)
        self.pending_bytes += len(batch.data)

    def sendable(self, now_ms: int) -> Iterator[TopicPartition]:
        for topic_partition, queue in self._queues.items():
            if queue.batches and queue.next_to_send(now_ms) is not None:
                yield topic_partition

    def take(
        self,
        broker_id: BrokerId,
        leader_of: Callable[[TopicPartition], BrokerId | None],
        *,
        max_request_bytes: int,
        now_ms: int,
    ) -> list[PendingBatch]:
        """Return the batches of the next request to a broker: at most one for each partition that it leads.

        Partitions take turns: otherwise, if more is written than a broker accepts, the last ones would
        starve. A single batch may exceed `max_request_bytes`, and the broker's limit decides.

        Source: the drain index of Kafka's RecordAccumulator.
        """
        taken: list[PendingBatch] = []
        taken_bytes = 0
        for topic_partition, queue in self._queues.items():
            batch = queue.next_to_send(now_ms)
            if batch is None or (taken and taken_bytes + len(batch.data) > max_request_bytes):
                continue
            if leader_of(topic_partition) != broker_id:
                continue
            batch.in_flight = True
            queue.in_flight += 1
            taken.append(batch)
            taken_bytes += len(batch.data)
        for batch in taken:
            self._queues[batch.topic_partition] = self._queues.pop(batch.topic_partition)
        return taken

    def acknowledge(self, batch: PendingBatch) -> None:
        """Remove a batch that the broker has, by this or an earlier request."""
        queue = self._landed(batch)
        queue.batches.remove(batch)
        queue.failures = 0
        queue.retried_ms = None
        queue.in_flight_limit = MAX_IN_FLIGHT_PER_PARTITION
        self.pending_bytes -= len(batch.data)

    def reject(
        self,
        batch: PendingBatch,
        error_code: ErrorCode,
        error_message: str | None,
        now_ms: int,
        *,
        leader_named: bool = False,
    ) -> RetryDecision:
        """Process a batch's error; return whether the batch is queued again.

        With `leader_named` the response named the leader (KIP-951), which is tried without a pause. An
        out-of-order sequence is only the consequence of an earlier failure, unless the batch is the oldest
        one: then the leader has lost batches acknowledged by an earlier leader.
        """
        queue = self._landed(batch)
        is_oldest = queue.batches[0] is batch
        detail = error_message or "the broker gave no details"
        if error_code in _SENT_BEFORE_ITS_PREDECESSOR:
            if is_oldest:
                return RetryDecision(
                    "the leader does not have the records acknowledged before; they were lost in an unclean "
                    f"election or by deletion while they were written ({detail})"
                )
        elif not error_code.retriable:
            return RetryDecision(detail)
        pause_ms = 0 if leader_named else self._retry_backoff.pause_ms(queue.failures)
        self._hold(queue, now_ms + pause_ms, leader_named=leader_named)
        return _RETRY

    def replace(self, batch: PendingBatch, parts: Sequence[PendingBatch], now_ms: int) -> None:
        """Replace a batch that is too large by `parts`, which have its sequences.

        Later batches in flight are now out of order, and are sent again behind them.
        """
        queue = self._landed(batch)
        place = queue.batches.index(batch)
        queue.batches.remove(batch)
        for number, part in enumerate(parts):
            queue.batches.insert(place + number, part)
        self.pending_bytes += sum(len(part.data) for part in parts) - len(batch.data)
        self._hold(queue, now_ms, leader_named=True)

    def hold_back(self, batch: PendingBatch, now_ms: int) -> None:
        """Requeue a batch whose connection ended before the response: the broker may have it."""
        queue = self._landed(batch)
        pause_ms = self._retry_backoff.pause_ms(queue.failures) if queue.failures else 0
        self._hold(queue, now_ms + pause_ms)

    def postpone(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Hold back a partition without a reachable leader."""
        queue = self._queues[topic_partition]
        self._hold(queue, now_ms + self._retry_backoff.pause_ms(queue.failures))

    def retried_ms(self, topic_partition: TopicPartition) -> int | None:
        """Return the time since which the partition is retried; None while its batches are acknowledged.

        A leader learned before that time may be outdated.
        """
        return self._queues[topic_partition].retried_ms

    def earliest_release_ms(self) -> int | None:
        """Return the time of the next retry of a partition that is held back with nothing in flight."""
        return min(
            (
                queue.held_until_ms
                for queue in self._queues.values()
                if queue.batches and not queue.in_flight and queue.held_until_ms is not None
            ),
            default=None,
        )

    def overdue(self, now_ms: int) -> PendingBatch | None:
        for queue in self._queues.values():
            if queue.batches and queue.batches[0].deadline_ms <= now_ms:
                return queue.batches[0]
        return None

    def _landed(self, batch: PendingBatch) -> _Queue:
        assert batch.in_flight, "a batch is answered once for each time it is taken"
        batch.in_flight = False
        queue = self._queues[batch.topic_partition]
        queue.in_flight -= 1
        return queue

    def _hold(self, queue: _Queue, until_ms: int, *, leader_named: bool = False) -> None:
        if queue.held_until_ms is None:
            queue.held_until_ms = until_ms
            queue.leader_named = leader_named
            queue.failures += 1
