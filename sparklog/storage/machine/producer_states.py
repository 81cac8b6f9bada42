"""What a log remembers of its producers: sequences, epochs, open transactions (KIP-98, KIP-185).

Pure state, no files: `producer_snapshots` gives it its form on disk. Order for callers: `check` a client's
batch before it is appended, `update` with its final header afterwards; `update` alone for batches that were
checked elsewhere (replication, recovery); `end_transaction` for a transaction marker.

Rule kept: per producer the last five batches are remembered, so that a retry of any of the up to five
requests a producer has in flight is recognised (which is why clients may have no more). A producer is
forgotten by when this replica last appended something of it, whatever its records' timestamps say: these
are the user's, of any century, and a retry after forgetting would be appended twice.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import BatchHeader
from sparklog.types import Offset, ProducerEpoch, ProducerId, TimestampMs

BATCHES_TO_RETAIN: Final = 5
_LAST_SEQUENCE: Final = 2**31 - 1


class Fresh(NamedTuple):
    """The batch is next in its producer's sequence (or has no producer id): append it."""


class Duplicate(NamedTuple):
    """The batch is in the log already: answer with where it is."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs
    """The largest timestamp of the batch, which under LogAppendTime is when it was appended."""


FRESH: Final = Fresh()


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: TimestampMs


class ProducerState:
    """One producer's last batches and its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "generation",
        "last_append_ms",
        "producer_epoch",
        "transaction_first_offset",
    )

    def __init__(self, producer_epoch: ProducerEpoch, last_append_ms: TimestampMs) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch: int | None = None
        """Of the coordinator that wrote the last transaction marker."""
        self.last_append_ms = last_append_ms
        """By the clock of who appended or replayed its last batch: what it expires by."""
        self.transaction_first_offset: Offset | None = None
        """None: no transaction is open."""
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)
        self.generation = 0
        """Calls of `ProducerStates.capture` before this was made: others may hold what is older."""

    def copy(self, generation: int) -> "ProducerState":
        """Return one that may be changed while somebody holds this one."""
        copied = ProducerState(self.producer_epoch, self.last_append_ms)
        copied.coordinator_epoch = self.coordinator_epoch
        copied.transaction_first_offset = self.transaction_first_offset
        copied.batches = self.batches.copy()
        copied.generation = generation
        return copied

    def enter_epoch(self, producer_epoch: ProducerEpoch) -> None:
        """Begin counting anew if the epoch is another one."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """The marker's."""
    aborted: bool
    last_stable_offset: Offset
    """What is stable once it is over: the first offset of the next open transaction, or after the marker."""


class ProducerStates:
    """The producers of one log, by producer id."""

    __slots__ = ("_generation", "_open", "_unreplicated", "end_offset", "producers")

    def __init__(self) -> None:
        self.producers: dict[ProducerId, ProducerState] = {}
        self.end_offset: Offset = 0
        """Where the last batch ends that changed anything here: a log that is cut there or above it has lost
        nothing of its producers."""
        self._generation = 0
        self._open: dict[Offset, ProducerId] = {}
        # Transactions ended by a marker that may not be replicated yet: first offset -> the marker's.
        self._unreplicated: dict[Offset, Offset] = {}

    def check(self, header: BatchHeader) -> Fresh | Duplicate:
        """Say whether a client's batch is next in sequence.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH (a newer instance has written), OUT_OF_ORDER_SEQUENCE_NUMBER,
                INVALID_TXN_STATE (not transactional inside an open transaction).
        """
        producer_id = header.producer_id
        if producer_id < 0 or (state := self.producers.get(producer_id)) is None:
            # Nothing is known of the producer (new, expired, or its records were deleted): any sequence.
            return FRESH
        producer_epoch = header.producer_epoch
        base_sequence = header.base_sequence
        if producer_epoch == state.producer_epoch:
            if base_sequence >= 0:
                batches = state.batches
                last_sequence = batches[-1].last_sequence if batches else -1
                if not (
                    base_sequence == last_sequence + 1
                    or (base_sequence == 0 and last_sequence == _LAST_SEQUENCE)
                ):
                    return self._duplicate_of(header, state, last_sequence)
        elif producer_epoch < state.producer_epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} writes with epoch {producer_epoch}, "
                f"but one of epoch {state.producer_epoch} has written",
            )
        elif base_sequence > 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id} begins epoch {producer_epoch} with sequence {base_sequence}, not 0",
            )
        if state.transaction_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} writes outside its transaction, "
                f"which is open since offset {state.transaction_first_offset}",
            )
        return FRESH

    def _duplicate_of(self, header: BatchHeader, state: ProducerState, last_sequence: int) -> Duplicate:
        first, last = header.base_sequence, header.last_sequence
        for batch in state.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return Duplicate(
                    batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp_ms
                )
        raise KafkaError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} sent sequence {first} after {last_sequence}",
        )

    def update(self, header: BatchHeader, now_ms: TimestampMs) -> None:
        """Remember a data batch that has been appended (or replayed) now; `header` has its final offsets.

        Batches without a producer id and control batches (see `end_transaction`) change nothing.
        """
        producer_id = header.producer_id
        if producer_id < 0 or header.is_control:
            return
        state = self._changeable(producer_id, header.producer_epoch, now_ms)
        offset_delta = header.last_offset_delta
        last_offset = header.base_offset + offset_delta
        self.end_offset = last_offset + 1
        first_sequence = header.base_sequence
        state.batches.append(
            BatchMetadata(
                first_sequence,
                header.last_sequence,
                last_offset,
                offset_delta,
                header.max_timestamp,
            )
        )
        state.last_append_ms = now_ms
        if state.transaction_first_offset is None and header.is_transactional:
            state.transaction_first_offset = header.base_offset
            self._open[header.base_offset] = producer_id

    def _changeable(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch, now_ms: TimestampMs
    ) -> ProducerState:
        """Return the state of a producer that is in this epoch now, known or new."""
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_epoch, now_ms)
            state.generation = self._generation
            return state
        if state.generation != self._generation:
            state = self.producers[producer_id] = state.copy(self._generation)
        state.enter_epoch(producer_epoch)
        return state

    def capture(self) -> Mapping[ProducerId, ProducerState]:
        """Return the producers as they are now, for who writes a snapshot beside the loop.

        Costs some 30 ns a producer; what is changed later is copied first.
        """
        self._generation += 1
        return self.producers.copy()

    def end_transaction(
        self, header: BatchHeader, now_ms: TimestampMs, *, aborted: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Remember a transaction marker that has been appended; None if it ended an empty transaction."""
        producer_id = header.producer_id
        state = self._changeable(producer_id, header.producer_epoch, now_ms)
        self.end_offset = header.last_offset + 1
        first_offset = state.transaction_first_offset
        state.transaction_first_offset = None
        state.coordinator_epoch = coordinator_epoch
        state.last_append_ms = now_ms
        if first_offset is None:
            return None
        self._open.pop(first_offset, None)
        self._unreplicated[first_offset] = header.last_offset
        last_stable_offset = min(self._open, default=header.last_offset + 1)
        return CompletedTransaction(
            producer_id, first_offset, header.last_offset, aborted, last_stable_offset
        )

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """Return the first offset of a transaction that is open or whose marker is not replicated.

        That is, not below `high_watermark`, which the caller must not let go back.
        """
        if not self._open and not self._unreplicated:
            return None
        replicated = [first for first, marker in self._unreplicated.items() if marker < high_watermark]
        for first_offset in replicated:
            del self._unreplicated[first_offset]
        return min([*self._open, *self._unreplicated], default=None)

    def restore(self, producer_id: ProducerId, state: ProducerState) -> None:
        """Take over a producer from a snapshot."""
        self.producers[producer_id] = state
        if state.transaction_first_offset is not None:
            self._open[state.transaction_first_offset] = producer_id

    def remove_expired(self, now_ms: TimestampMs, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms`, without an open transaction; return how many."""
        expired = [
            producer_id
            for producer_id, state in self.producers.items()
            if state.transaction_first_offset is None and now_ms - state.last_append_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything."""
        self.producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = 0
