"""Truncations of a log: to an offset, at damage, completely, and to the tier's end; and the work they leave.

A truncation is cheap and done at once. The loss of producer state, or of checkpointed offsets, is repaired
off the loop (`producer_loading`). For the thread that changes the log.
"""

from collections.abc import Iterable, Sequence

from sparklog.node.storage.files import (
    PRODUCER_SNAPSHOT_SUFFIX,
    REBUILT_EPOCHS_MARKER,
    offset_file,
    storage_errors,
)
from sparklog.node.storage.log.log_state import LogState
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.node.storage.machine.producer_states import ProducerStates, without_open_transactions
from sparklog.node.storage.producers.producer_loading import ProducerLoading
from sparklog.node.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
    snapshot_offsets,
)
from sparklog.node.storage.segments.cut_files import keep_copy
from sparklog.node.storage.segments.segment_list import number_of
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs


class LogTruncation(LogState):
    def truncate_to(self, offset: Offset) -> bool:
        """Remove every batch that reaches to `offset` or above; return whether any was removed.

        Regions above `offset` that were handed out can no longer be sent in full. If removed batches had
        changed producer state, or a checkpoint lies above the new end, `loading` is set: nothing may be
        appended until the caller has run it off the loop, has lowered those checkpoints, and has passed the
        result to `take_producers`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self.segments.all[0].base_offset:
            # The tier's part below the new end is as true as before.
            start = min(self.log_start_offset, offset)
            epochs = LeaderEpochs(self.epochs.entries)
            epochs.truncate_from_end(offset if start < offset else 0)
            self._begin_again(start, offset, epochs.entries, ProducerStates())
            return True
        was_loading = self.loading is not None
        # Before the truncation, since a running load may fail because of it.
        self._cancel_loading()
        with self.all_or_torn(f"truncate {self.directory} to {offset}"), self.truncations.running():
            self._forget_above(offset)
            log_end_offset = self.segments.truncate_to(offset, self.config)
            self.metadata_unsynced = True
            self.log_end_offset = log_end_offset
            self.log_start_offset = min(self.log_start_offset, log_end_offset)
            self.recovery_point = min(self.recovery_point, log_end_offset)
            if self.cleaned_offset is not None:
                # Records appended from here on are not cleaned, even if the truncation was above the cleaned
                # offset.
                self.cleaned_offset = min(self.cleaned_offset, log_end_offset)
            if self.epochs.truncate_from_end(log_end_offset):
                self.write_epochs()
            for snapshot in snapshot_offsets(self.directory):
                if snapshot > log_end_offset:
                    offset_file(self.directory, snapshot, PRODUCER_SNAPSHOT_SUFFIX).unlink(missing_ok=True)
        if was_loading or self.producers.end_offset > log_end_offset or self.is_checkpointed_too_high:
            self._begin_loading()
        return True

    def _begin_loading(self) -> None:
        self.loading = ProducerLoading(self.directory, self.segments.all, self.snapshots, self.log_end_offset)

    def take_producers(self, loading: ProducerLoading, producers: ProducerStates) -> None:
        """Take over the producers from `loading`, unless a newer one has replaced it."""
        if self.loading is loading:
            self.producers = producers
            self.loading = None

    def _cancel_loading(self) -> None:
        if self.loading is not None:
            self.loading.cancel()
            self.loading = None

    def cut_at(self, offset: Offset, reason: str) -> None:
        """Remove the batches from `offset` on; a copy of their beginning is kept beside the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        segment = self.segments.all[number_of(self.segments.all, offset)]
        try:
            position = segment.position_of(offset)
            with storage_errors(f"copy the damaged part of {segment.file.path}"):
                keep_copy(segment, position, reason)
            self.truncate_to(offset)
        except CorruptBatchError:
            # The batches before the damage are unreadable, too.
            with storage_errors(f"copy the damaged part of {segment.file.path}"):
                keep_copy(segment, 0, reason)
            self.truncate_fully_and_start_at(self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Empty the log; it starts at `offset`. `loading` may be set as by `truncate_to`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._begin_again(offset, offset, (), ProducerStates())

    def adopt(
        self,
        *,
        leader_epochs: Iterable[tuple[LeaderEpoch, Offset]],
        producers: bytes | None,
        log_start_offset: Offset,
        end_offset: Offset,
        now_ms: TimestampMs,
    ) -> None:
        """Empty the log; it goes on at `end_offset`, and all of it below is in the tier.

        `leader_epochs` are those of the tier's records with their first offsets, `producers` the content of a
        producer snapshot as of `end_offset` (None: there are no producers). Transactions that are open there
        are decided, and are not taken over. `loading` may be set as by `truncate_to`. The caller flushes the
        log before it serves: no batch says later where it begins.

        Raises:
            KafkaError: CORRUPT_MESSAGE: not a producer snapshot; nothing was changed. KAFKA_STORAGE_ERROR.
        """
        assert log_start_offset <= end_offset, f"the tier cannot have [{log_start_offset}, {end_offset})"
        states = self._decoded(producers, end_offset, now_ms)
        epochs = _epochs_within(leader_epochs, log_start_offset, end_offset)
        self._begin_again(log_start_offset, end_offset, epochs, states)

    def take_tier_state(
        self,
        *,
        leader_epochs: Iterable[tuple[LeaderEpoch, Offset]],
        producers: bytes | None,
        now_ms: TimestampMs,
    ) -> None:
        """Take the tier's epochs and producers over, for a log that was filled with the tier's records.

        `producers` are as of the log end offset, see `adopt`: batches made of the tier's records name none.
        The caller flushes the log: recovery reads producers of checked batches from these.

        Raises:
            KafkaError: CORRUPT_MESSAGE: not a producer snapshot; nothing was changed. KAFKA_STORAGE_ERROR.
        """
        states = self._decoded(producers, self.log_end_offset, now_ms)
        self.epochs.replace(_epochs_within(leader_epochs, self.log_start_offset, self.log_end_offset))
        self.write_epochs()
        self.producers = states
        self.snapshots.add(self.log_end_offset, states.capture())

    def _decoded(self, producers: bytes | None, offset: Offset, now_ms: TimestampMs) -> ProducerStates:
        if producers is None:
            return ProducerStates()
        try:
            decoded = decode_snapshot(producers, now_ms)
        except CorruptSnapshotError as error:
            name = self.topic_partition
            message = f"{name}: the tier's producer snapshot at {offset} cannot be read: {error}"
            raise KafkaError(ErrorCode.corrupt_message, message) from error
        states = ProducerStates()
        # Snapshots of earlier versions have transactions whose markers lie above the tier's end.
        states.restore(without_open_transactions(decoded.producers))
        states.end_offset = offset if states.producers else 0
        return states

    def _begin_again(
        self,
        log_start_offset: Offset,
        end_offset: Offset,
        epochs: Sequence[EpochEntry],
        producers: ProducerStates,
    ) -> None:
        """Empty the files; the log goes on at `end_offset`, with the state that its records below leave."""
        self._cancel_loading()
        with self.all_or_torn(f"empty {self.directory}"), self.truncations.running():
            self._forget_above(end_offset)
            self.segments.truncate_fully_and_start_at(end_offset, self.config)
            self.snapshots.forget_all()
            for offset in snapshot_offsets(self.directory):
                offset_file(self.directory, offset, PRODUCER_SNAPSHOT_SUFFIX).unlink()
            if producers.producers:
                snapshot = encode_snapshot(producers.producers)
                offset_file(self.directory, end_offset, PRODUCER_SNAPSHOT_SUFFIX).write_bytes(snapshot)
                # A kill leaves the file; the next flush writes it again, and fsyncs it.
                self.snapshots.add(end_offset, producers.capture())
            self.log_start_offset, self.log_end_offset = log_start_offset, end_offset
            self.log_start_is_guessed = False
            self.producers = producers
            self.epochs.replace(epochs)
            self.write_epochs()
            (self.directory / REBUILT_EPOCHS_MARKER).unlink(missing_ok=True)
        if self.is_checkpointed_too_high:
            self._begin_loading()

    def _forget_above(self, offset: Offset) -> None:
        """Lower the recovery point to `offset`, even if a flush is running."""
        self.recovery_point = min(self.recovery_point, offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)
        self.snapshots.forget(above=offset)


def _epochs_within(
    leader_epochs: Iterable[tuple[LeaderEpoch, Offset]], start_offset: Offset, end_offset: Offset
) -> Sequence[EpochEntry]:
    epochs = LeaderEpochs(EpochEntry(*entry) for entry in leader_epochs)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    return epochs.entries
