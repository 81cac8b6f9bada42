"""Producer state of a log: sequences, epochs, open transactions (KIP-98, KIP-185, KIP-890).

Pure state, no files: `producer_snapshots` encodes it for the disk. Order for callers: `check` a client's
batch before it is appended, `update` with its final header afterwards; `update` alone for batches that were
checked elsewhere (replication, recovery). A transaction marker is checked by `check_marker` and applied by
`end_transaction`. The first batch of a transaction is verified before it is checked: `begin_verification`.
A truncated log takes its last batches back (`take_back`), or gets its producers from its files.

Rule kept: the last five batches of each producer are remembered, so that a retry of any of the up to five
requests in flight is recognised (which is why clients may have no more). A producer expires by the time of
its last append on this replica, not by its records' timestamps: users choose those freely, and a retry after
the expiry would be appended twice.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sparklog.node.storage.machine.rising_offsets import RisingOffsets
from sparklog.node.storage.machine.verification import Verification, Verifications
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from sparklog.protocol.types import Offset, ProducerEpoch, ProducerId, TimestampMs

BATCHES_TO_RETAIN: Final = 5
EXAMINED_AT_A_TIME: Final = 2_000
"""Producers examined at a time, in less than a millisecond."""
_LAST_SEQUENCE: Final = 2**31 - 1
_LAST_EPOCH: Final = 2**15 - 1
_FIRST_VERSION_WITH_EPOCH_BUMP: Final = 2


class Fresh(NamedTuple):
    """The batch is next in its producer's sequence (or has no producer id): append it."""


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs
    """Largest timestamp of the batch; under LogAppendTime the time of its append."""


FRESH: Final = Fresh()


class BatchMetadata(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: TimestampMs


class ProducerState:
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
        """Epoch of the coordinator that wrote the last transaction marker."""
        self.last_append_ms = last_append_ms
        """Wall-clock time of the last append or replay on this broker, by which the producer expires."""
        self.transaction_first_offset: Offset | None = None
        """None without an open transaction."""
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)
        self.generation = 0
        """Number of `ProducerStates.capture` calls before this was created: an older state may be shared."""

    def copy(self, generation: int) -> "ProducerState":
        """Return a copy that may be changed while a snapshot shares this one."""
        copied = ProducerState(self.producer_epoch, self.last_append_ms)
        copied.coordinator_epoch = self.coordinator_epoch
        copied.transaction_first_offset = self.transaction_first_offset
        copied.batches = self.batches.copy()
        copied.generation = generation
        return copied

    def enter_epoch(self, producer_epoch: ProducerEpoch) -> None:
        """Reset the sequences if the epoch is another one."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class CompletedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool
    last_stable_offset: Offset
    """Last stable offset afterwards: the first offset of the next open transaction, or the one after the
    marker."""


class ProducerStates:
    def __init__(self) -> None:
        self.producers: dict[ProducerId, ProducerState] = {}
        self.end_offset: Offset = 0
        """End offset of the last batch that changed producer state: a truncation at or above it loses
        none."""
        self._generation = 0
        self._open = RisingOffsets()
        # First offsets of transactions that are open, or whose marker may not be replicated yet,
        self._unstable = RisingOffsets()
        # and of the latter: the marker's offset, and the first. Rising by the marker's.
        self._unreplicated: deque[tuple[Offset, Offset]] = deque()
        self.verifications: Final = Verifications()

    def begin_verification(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: int,
        now_ms: TimestampMs,
        *,
        supports_epoch_bump: bool,
    ) -> Verification | None:
        """Return the verification with which a transactional batch is appended once its coordinator agrees.

        None if its transaction is open here already. `now_ms` is the wall clock's.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH (a newer instance has written).
        """
        state = self.producers.get(producer_id)
        if state is not None:
            if producer_epoch < state.producer_epoch:
                raise _fenced(producer_id, producer_epoch, state.producer_epoch)
            if state.transaction_first_offset is not None and producer_epoch == state.producer_epoch:
                return None
        return self.verifications.begin(
            producer_id, producer_epoch, base_sequence, now_ms, supports_epoch_bump=supports_epoch_bump
        )

    def check(
        self, header: BatchHeader, verification: Verification | None = None, *, verifies: bool = False
    ) -> Fresh | Duplicate:
        """Check that a client's or a coordinator's data batch is next in sequence.

        With `verifies`, a batch that begins a transaction needs its `verification`.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH (a newer instance has written), OUT_OF_ORDER_SEQUENCE_NUMBER,
                INVALID_TXN_STATE (not transactional inside an open transaction, or not verified).
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return FRESH
        is_transactional = header.attributes & TRANSACTIONAL_BIT
        state = self.producers.get(producer_id)
        if state is None:
            if is_transactional:
                self.verifications.check(header, verification, is_required=verifies, is_first=True)
            # An unknown producer (new, expired, or its records were deleted) may begin with any sequence.
            return FRESH
        refusal: KafkaError | None = None
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
                    duplicate = _duplicate_of(header, state)
                    if duplicate is not None:
                        return duplicate
                    refusal = _out_of_order(
                        f"producer {producer_id} sent sequence {base_sequence} after {last_sequence}"
                    )
        elif producer_epoch < state.producer_epoch:
            raise _fenced(producer_id, producer_epoch, state.producer_epoch)
        elif base_sequence > 0:
            refusal = _out_of_order(
                f"producer {producer_id} begins epoch {producer_epoch} with sequence {base_sequence}, not 0"
            )
        is_open = state.transaction_first_offset is not None
        if is_transactional and not (is_open and producer_epoch == state.producer_epoch):
            self.verifications.check(header, verification, is_required=verifies, is_first=not state.batches)
        if refusal is not None:
            raise refusal
        if is_open and not is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} writes outside its transaction, "
                f"which is open since offset {state.transaction_first_offset}",
            )
        return FRESH

    def check_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Refuse an outdated transaction marker.

        Since transactions version 2 a marker's epoch is above that of the records it ends: the next
        transaction has the marker's epoch. A repeated marker without an open transaction is harmless. The
        last epoch has no successor.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH (a newer instance has written, or the marker is of an earlier
                transaction), TRANSACTION_COORDINATOR_FENCED (a newer coordinator has written).
        """
        state = self.producers.get(producer_id)
        if state is None:
            return
        if producer_epoch < state.producer_epoch:
            raise _fenced(producer_id, producer_epoch, state.producer_epoch)
        if (
            producer_epoch == state.producer_epoch
            and transaction_version >= _FIRST_VERSION_WITH_EPOCH_BUMP
            and state.transaction_first_offset is not None
            and producer_epoch != _LAST_EPOCH
        ):
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"the marker of producer {producer_id} has epoch {producer_epoch}, "
                "but so has the transaction that is open",
            )
        if state.coordinator_epoch is not None and coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"a coordinator of epoch {coordinator_epoch} ends a transaction of producer {producer_id}, "
                f"but one of epoch {state.coordinator_epoch} has done so before",
            )

    def update(self, header: BatchHeader, now_ms: TimestampMs) -> None:
        """Apply an appended (or replayed) data batch; `header` has its final offsets.

        Batches without a producer id and control batches (see `end_transaction`) change nothing.
        """
        producer_id = header.producer_id
        if producer_id < 0 or header.attributes & CONTROL_BIT:
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
        if header.attributes & TRANSACTIONAL_BIT:
            if state.transaction_first_offset is None:
                state.transaction_first_offset = header.base_offset
                self._open.add(header.base_offset)
                self._unstable.add(header.base_offset)
            self.verifications.data_appended(producer_id)

    def take_back(self, removed: Sequence[BatchHeader], before: Sequence[BatchHeader] = ()) -> bool:
        """Return to the state before `removed`, the last batches of the log; return whether it is known.

        Otherwise nothing changes: a marker is among them, or a producer's first batch that is remembered.
        `before` are batches right before them, where those are found that the removed ones have displaced.

        >>> ProducerStates().take_back(())
        True
        """
        first_offset = removed[0].base_offset if removed else self.end_offset
        producer_ids = {header.producer_id for header in removed if header.producer_id >= 0}
        for header in removed:
            state = self.producers.get(header.producer_id)
            if header.producer_id >= 0 and (
                header.is_control or state is None or state.producer_epoch != header.producer_epoch
            ):
                return False
        displaced = ProducerStates()
        for header in before:
            displaced.update(header, 0)
        left: dict[ProducerId, list[BatchMetadata]] = {}
        for producer_id in producer_ids:
            state, found = self.producers[producer_id], displaced.producers.get(producer_id)
            batches = [each for each in state.batches if each.last_offset < first_offset]
            if (
                found is not None
                and found.producer_epoch == state.producer_epoch
                and len(found.batches) > len(batches)
            ):
                batches = list(found.batches)
            if not batches:
                return False
            left[producer_id] = batches
        for producer_id, batches in left.items():
            state = self._unshared(producer_id, self.producers[producer_id])
            state.batches = deque(batches, maxlen=BATCHES_TO_RETAIN)
            if state.transaction_first_offset is not None and state.transaction_first_offset >= first_offset:
                state.transaction_first_offset = None
        self._open.discard_from(first_offset)
        self._unstable.discard_from(first_offset)
        self.verifications.clear()
        self.end_offset = min(self.end_offset, first_offset)
        return True

    def _changeable(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch, now_ms: TimestampMs
    ) -> ProducerState:
        """Return a producer's state in this epoch, unshared; create it if there is none."""
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_epoch, now_ms)
            state.generation = self._generation
            return state
        state = self._unshared(producer_id, state)
        state.enter_epoch(producer_epoch)
        return state

    def _unshared(self, producer_id: ProducerId, state: ProducerState) -> ProducerState:
        """Return a producer's state, or a copy in its place if a snapshot shares it."""
        if state.generation != self._generation:
            state = self.producers[producer_id] = state.copy(self._generation)
        return state

    def capture(self) -> Mapping[ProducerId, ProducerState]:
        """Return the current producers, for a snapshot written off the loop.

        Costs some 30 ns a producer; states that change later are copied first.
        """
        self._generation += 1
        return self.producers.copy()

    def end_transaction(
        self, header: BatchHeader, now_ms: TimestampMs, *, aborted: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Apply an appended transaction marker; return None if its transaction was empty."""
        producer_id = header.producer_id
        state = self._changeable(producer_id, header.producer_epoch, now_ms)
        self.end_offset = header.last_offset + 1
        first_offset = state.transaction_first_offset
        state.transaction_first_offset = None
        state.coordinator_epoch = coordinator_epoch
        state.last_append_ms = now_ms
        self.verifications.marker_appended(producer_id, header.producer_epoch)
        if first_offset is None:
            return None
        last_offset = header.last_offset
        self._open.discard(first_offset)
        self._unreplicated.append((last_offset, first_offset))
        first_open = self._open.first
        last_stable_offset = last_offset + 1 if first_open is None else first_open
        return CompletedTransaction(producer_id, first_offset, last_offset, aborted, last_stable_offset)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """Return the first offset of a transaction that is open or whose marker is not replicated.

        A marker at or above `high_watermark` is not replicated; the caller must not let it go back.
        """
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            self._unstable.discard(unreplicated.popleft()[1])
        return self._unstable.first

    def restore(self, producers: Mapping[ProducerId, ProducerState]) -> None:
        """Take over the producers of a snapshot."""
        self.producers.update(producers)
        for first_offset in sorted(
            state.transaction_first_offset
            for state in producers.values()
            if state.transaction_first_offset is not None
        ):
            self._open.add(first_offset)
            self._unstable.add(first_offset)

    def remove_expired(self, now_ms: TimestampMs, expiration_ms: int) -> Iterator[int]:
        """Remove producers idle for `expiration_ms`, without an open transaction; yield how many.

        In portions: a partition may have a million.
        """
        producers = self.producers
        left = iter((*producers, *self.verifications))
        while portion := tuple(islice(left, EXAMINED_AT_A_TIME)):
            count = 0
            for producer_id in portion:
                state = producers.get(producer_id)
                if (
                    state is not None
                    and state.transaction_first_offset is None
                    and now_ms - state.last_append_ms >= expiration_ms
                ):
                    del producers[producer_id]
                    count += 1
                self.verifications.remove_expired(producer_id, now_ms, expiration_ms)
            yield count


def without_open_transactions(
    producers: Mapping[ProducerId, ProducerState],
) -> dict[ProducerId, ProducerState]:
    """Return the producers as of an offset below which every transaction is decided.

    The last stable offset had passed it, so that the markers lie above. If these are lost with the log, no
    other will come: epochs and sequences are kept, the transactions are not.
    """
    decided = {}
    for producer_id, state in producers.items():
        decided[producer_id] = state
        if state.transaction_first_offset is not None:
            decided[producer_id] = state.copy(state.generation)
            decided[producer_id].transaction_first_offset = None
    return decided


def _fenced(producer_id: ProducerId, producer_epoch: ProducerEpoch, known_epoch: ProducerEpoch) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_producer_epoch,
        f"producer {producer_id} writes with epoch {producer_epoch}, "
        f"but one of epoch {known_epoch} has written",
    )


def _out_of_order(message: str) -> KafkaError:
    return KafkaError(ErrorCode.out_of_order_sequence_number, message)


def _duplicate_of(header: BatchHeader, state: ProducerState) -> Duplicate | None:
    first, last = header.base_sequence, header.last_sequence
    for batch in state.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return Duplicate(batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp_ms)
    return None
