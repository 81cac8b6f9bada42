"""One partition's log: append, read, look up, truncate, roll, retain.

Threads: the methods that change a log (`append_as_*`, `assign_leader_epoch`, `truncate_*`,
`advance_log_start_offset`, `roll`, `delete_old_segments`, `remove_expired_producers`, `reconfigure`) are
for one thread at a time, normally the broker's event loop; none of them fsyncs. `open`, `flush`,
`flush_rolled`, `delete_files_due`, `close` and `rename_for_deletion` may block for long and belong off the
loop. `flush`, `flush_rolled`, `delete_files_due`, `read` and `offset_for_timestamp` are safe beside any of
the former in another thread.

Rule kept: an append is in the log whole or not at all. On the disk for certain is only what lies below
`recovery_point`; the rest is for replication to vouch for (and for `flush`, where that does not do). Whoever
keeps logs calls `flush_rolled` when a log `has_rolled`, so that a start after a crash reads no more than what
was active.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from uuid import UUID, uuid4

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    STAMP_BYTES,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    iterate_headers,
    read_header,
    stamp,
    stamp_with_append_time,
)
from sparklog.storage.checkpoints import read_topic_id, write_leader_epochs, write_topic_id
from sparklog.storage.cut_files import keep_copy
from sparklog.storage.files import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_GAPS_MARKER,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    directory_name,
    is_disk_error,
    offset_file,
    partition_of,
    storage_error,
    storage_errors,
    sync_directory,
    sync_file,
)
from sparklog.storage.log_config import LogConfig
from sparklog.storage.log_reads import LogReads
from sparklog.storage.machine.producer_states import Duplicate, ProducerStates
from sparklog.storage.machine.recovery_rules import PreviousStop
from sparklog.storage.machine.retention import count_deletable
from sparklog.storage.producer_loading import ProducerLoading
from sparklog.storage.producer_replay import apply_batch
from sparklog.storage.producer_snapshots import snapshot_offsets
from sparklog.storage.recovery import LoadedLog, load_log
from sparklog.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AbortedTransaction,
    AppendInfo,
    ReadResult,
)
from sparklog.storage.segment import MAX_RELATIVE_OFFSET, Buffer
from sparklog.storage.segment_list import number_of
from sparklog.storage.time_lookup import OffsetAndTimestamp
from sparklog.storage.unwritten_snapshots import UnwrittenSnapshots
from sparklog.types import LeaderEpoch, Offset, TimestampMs

__all__ = [
    "EARLIEST_LOCAL_TIMESTAMP",
    "EARLIEST_TIMESTAMP",
    "LATEST_TIERED_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "AbortedTransaction",
    "AppendInfo",
    "Log",
    "OffsetAndTimestamp",
    "ReadResult",
]


class Log(LogReads):
    """The log of one partition in its directory `<topic>-<partition>`. Made by `Log.open`."""

    def __init__(self, directory: Path, config: LogConfig, topic_id: UUID | None, loaded: LoadedLog) -> None:
        super().__init__(directory, config, topic_id, loaded)
        self.recovery_point = loaded.recovery_point
        """Everything below is on the disk."""
        self.checkpointed_recovery_point: Offset = 0
        """The highest recovery point that a file may have of this log; who writes the file says so here."""
        self.missing = loaded.missing
        """What recovery found to be gone of what this replica had (a reason for people); None for nothing.

        Whoever counts this log as a replica tells the controller first, and forgets it when that is done.
        """
        self.checked_bytes = loaded.checked_bytes
        """How much of it had to be read when it was opened."""
        self.loading: ProducerLoading | None = None
        """What remains to be done of the last truncation; see `truncate_to`."""
        self._may_have_gaps = loaded.may_have_gaps
        self._flush_failed: KafkaError | None = None
        self._flushing = Lock()
        self._metadata_unsynced = True
        self._is_new = False
        """The directory's own name may not be on the disk yet."""
        self._is_torn = False
        self._snapshots = UnwrittenSnapshots(directory)
        self._given_up = False

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        high_watermark: Offset = 0,
        stop: PreviousStop = PreviousStop.UNKNOWN,
        now_ms: TimestampMs,
        topic_id: UUID | None = None,
    ) -> "Log":
        """Open or create the log in `directory`; recover what is above `recovery_point` unless it was closed.

        Blocking; off the loop. The offsets are the last that were checkpointed. `topic_id` is written to
        `partition.metadata` when that is missing.

        Raises:
            ValueError: the directory's name is not `<topic>-<partition>`.
            KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        partition_of(directory.name)
        with storage_errors(f"open the log in {directory}"):
            is_new = not directory.exists()
            directory.mkdir(parents=True, exist_ok=True)
            metadata = directory / PARTITION_METADATA
            stored_id = read_topic_id(metadata)
            if stored_id is None and topic_id is not None:
                write_topic_id(metadata, topic_id)
            elif topic_id is not None and stored_id != topic_id:
                raise KafkaError(
                    ErrorCode.inconsistent_topic_id,
                    f"{directory} belongs to topic id {stored_id}, not {topic_id}",
                )
            loaded = load_log(
                directory,
                config,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                stop=stop,
                now_ms=now_ms,
            )
            log = cls(directory, config, stored_id or topic_id, loaded)
            log._is_new = is_new
            log.checkpointed_recovery_point = recovery_point
            return log

    # Appending

    def append_as_leader(
        self,
        records: bytes | memoryview,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> AppendInfo:
        """Append a validated batch, giving it offsets and `leader_epoch`.

        `header` is that of `records`, as `records.batch.validate_produced` returned it. Checks the
        producer's sequence itself: a retry of a batch that is in the log is answered with
        `duplicate=True` and changes nothing. Under LogAppendTime the batch gets `now_ms`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (nothing was appended), RECORD_LIST_TOO_LARGE (more than a
                segment holds), or what `ProducerStates.check` raises.
        """
        assert self.loading is None, f"{self} does not know its producers yet"
        if header.producer_id >= 0:
            outcome = self.producers.check(header)
            if type(outcome) is Duplicate:
                return self._duplicate(outcome)
        config = self.config
        size_bytes = header.batch_length + LENGTH_OVERHEAD
        if size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size_bytes} bytes of records exceed segment.bytes, which is {config.segment_bytes}",
            )
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        view = memoryview(records)
        parts: list[Buffer]
        if config.log_append_time:
            prefix = stamp_with_append_time(base_offset, leader_epoch, header, view, now_ms)
            parts = [prefix, view[HEADER_BYTES:]]
            stamped = read_header(prefix)
        else:
            parts = [stamp(base_offset, leader_epoch, header), view[STAMP_BYTES:]]
            stamped = BatchHeader._make((base_offset, header[1], leader_epoch, *header[3:]))
        if self.segments.must_roll(config, size_bytes, stamped.max_timestamp, last_offset, now_ms):
            self._roll(base_offset, now_ms)
        if leader_epoch != self.epochs.latest:
            self.assign_leader_epoch(leader_epoch)
        self._append(parts, size_bytes, (stamped,), view, now_ms)
        return AppendInfo(
            base_offset, last_offset, now_ms if config.log_append_time else None, self.log_start_offset
        )

    def _duplicate(self, known: Duplicate) -> AppendInfo:
        append_time_ms = known.append_time if self.config.log_append_time else None
        return AppendInfo(
            known.base_offset, known.last_offset, append_time_ms, self.log_start_offset, duplicate=True
        )

    def append_as_follower(self, records: bytes | memoryview, now_ms: TimestampMs) -> AppendInfo | None:
        """Append a leader's batches with the offsets and epochs they have; a partial last batch is left out.

        `now_ms` is the wall clock's: what producers expire by. Offsets may have gaps (compaction). Returns
        None when there is not one whole batch.

        Raises:
            KafkaError: CORRUPT_MESSAGE (bad CRC, length or magic), OFFSET_OUT_OF_RANGE (the first batch
                begins below `log_end_offset`, or offsets do not rise), KAFKA_STORAGE_ERROR. Nothing was
                appended, except that before a KAFKA_STORAGE_ERROR whole batches may have been, up to
                `log_end_offset`.
        """
        assert self.loading is None, f"{self} does not know its producers yet"
        view = memoryview(records)
        expected_offset = self.log_end_offset
        headers: list[BatchHeader] = []
        end = 0
        max_timestamp_ms = -1
        has_gaps = False
        for position, header in iterate_headers(view):
            check_crc(view, position, header)
            if header.base_offset != expected_offset:
                has_gaps = True
            if header.base_offset < expected_offset or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"{self.topic_partition}: offsets {header.base_offset} to {header.last_offset} "
                    f"cannot follow the log end offset {expected_offset}",
                )
            headers.append(header)
            expected_offset = header.base_offset + header.last_offset_delta + 1
            end = position + header.batch_length + LENGTH_OVERHEAD
            if header.max_timestamp > max_timestamp_ms:
                max_timestamp_ms = header.max_timestamp
        if not headers:
            return None
        if has_gaps and not self._may_have_gaps:
            self._note_gaps()
        base_offset = headers[0].base_offset
        if self.segments.active.size_bytes + end <= self.config.segment_bytes and not self.segments.must_roll(
            self.config, end, max_timestamp_ms, expected_offset - 1, None
        ):
            self._append_run(view[:end], headers, now_ms)
        else:
            self._append_over_rolls(view, headers, now_ms)
        return AppendInfo(base_offset, expected_offset - 1, None, self.log_start_offset)

    def _note_gaps(self) -> None:
        """Have recovery take gaps for what the leader's log is like, and not for damage."""
        with storage_errors(f"write {self.directory / OFFSET_GAPS_MARKER}"):
            (self.directory / OFFSET_GAPS_MARKER).touch()
        self._may_have_gaps = True

    def _append_over_rolls(self, view: memoryview, headers: list[BatchHeader], now_ms: TimestampMs) -> None:
        """Append batches that do not all go into the active segment."""
        run: list[BatchHeader] = []
        start = end = 0
        for header in headers:
            active = self.segments.active
            size_bytes = header.size_bytes
            if run and (
                active.size_bytes + end - start + size_bytes > self.config.segment_bytes
                or header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            ):
                self._append_run(view[start:end], run, now_ms)
                run, start = [], end
            if not run and self.segments.must_roll(
                self.config, size_bytes, header.max_timestamp, header.last_offset, None
            ):
                self._roll(header.base_offset, now_ms)
            run.append(header)
            end += size_bytes
        self._append_run(view[start:end], run, now_ms)

    def _append_run(self, view: memoryview, headers: list[BatchHeader], now_ms: TimestampMs) -> None:
        changed = False
        latest = self.epochs.latest
        for header in headers:
            leader_epoch = header.partition_leader_epoch
            if leader_epoch != latest and leader_epoch >= 0 and (latest is None or leader_epoch > latest):
                changed |= self.epochs.assign(leader_epoch, header.base_offset)
                latest = leader_epoch
        if changed:
            self._write_epochs()
        self._append([view], len(view), headers, view, now_ms)

    def _append(
        self,
        parts: list[Buffer],
        total_bytes: int,
        headers: Sequence[BatchHeader],
        view: memoryview,
        now_ms: TimestampMs,
    ) -> None:
        active = self.segments.active
        try:
            active.append(parts, total_bytes, headers, self.config)
        except OSError as error:
            raise storage_error(f"append to {active.file.path}", error) from error
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                if header.is_control:
                    with self._all_or_torn(f"append to {active.transaction_index.path}"):
                        batch = view[position : position + header.size_bytes]
                        apply_batch(self.producers, header, batch, active, now_ms)
                else:
                    self.producers.update(header, now_ms)
            position += header.batch_length + LENGTH_OVERHEAD
        last = headers[-1]
        self.log_end_offset = last.base_offset + last.last_offset_delta + 1

    def assign_leader_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Note that `leader_epoch` begins at the log end offset: for a broker that becomes leader.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self._write_epochs()

    def _write_epochs(self) -> None:
        # Not fsynced: after a crash of the machine recovery finds the epochs in the batches, and `flush`
        # fsyncs before it lets recovery begin above them.
        write_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT, self.epochs.entries, sync=False)
        self._metadata_unsynced = True

    # Rolling, truncating, retaining

    def roll(self, now_ms: TimestampMs) -> None:
        """Begin a new active segment at the log end offset (nothing if the active one is empty).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.segments.active.size_bytes:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Begin a new segment at `base_offset`, which is the log end offset or above."""
        with storage_errors(f"roll {self.segments.active.file.path}"):
            has_records = self.segments.active.size_bytes > 0
            self.segments.roll(base_offset, self.config, now_ms)
            if has_records:
                self._snapshots.add(base_offset, self.producers.capture())
            self._metadata_unsynced = True

    def truncate_to(self, offset: Offset) -> bool:
        """Remove every batch that reaches to `offset` or above it; return whether anything went.

        Regions that were handed out above `offset` can no longer be sent in full. If some of what went is
        remembered of producers, or lies below `checkpointed_recovery_point`, `loading` is set: nothing may be
        appended until the caller has had it run beside the loop, has had that checkpoint lowered, and has
        passed the outcome to `take_producers`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self.segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        was_loading = self.loading is not None
        # Before anything is cut: whoever is loading may stumble over it.
        self._cancel_loading()
        with self._all_or_torn(f"truncate {self.directory} to {offset}"), self._truncations.running():
            self._forget_above(offset)
            log_end_offset = self.segments.truncate_to(offset, self.config)
            self._metadata_unsynced = True
            self.log_end_offset = log_end_offset
            self.log_start_offset = min(self.log_start_offset, log_end_offset)
            if self.epochs.truncate_from_end(log_end_offset):
                self._write_epochs()
            for snapshot in snapshot_offsets(self.directory):
                if snapshot > log_end_offset:
                    offset_file(self.directory, snapshot, PRODUCER_SNAPSHOT_SUFFIX).unlink(missing_ok=True)
        if was_loading or self.producers.end_offset > log_end_offset or self.is_checkpointed_too_high:
            self._begin_loading()
        return True

    @property
    def is_checkpointed_too_high(self) -> bool:
        """Whether recovery would trust what was written over what was cut."""
        return self.recovery_point < self.checkpointed_recovery_point

    def _begin_loading(self) -> None:
        self.loading = ProducerLoading(
            self.directory, self.segments.all, self._snapshots, self.log_start_offset, self.log_end_offset
        )

    def take_producers(self, loading: ProducerLoading, producers: ProducerStates) -> None:
        """Take over what `loading` has loaded, if that is still wanted."""
        if self.loading is loading:
            self.producers = producers
            self.loading = None

    def _cancel_loading(self) -> None:
        if self.loading is not None:
            self.loading.cancel()
            self.loading = None

    def cut_at(self, offset: Offset, reason: str) -> None:
        """Remove what lies from `offset` on; a copy of its beginning is kept beside the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        segment = self.segments.all[number_of(self.segments.all, offset)]
        try:
            position = segment.position_of(offset)
            with storage_errors(f"keep what is damaged in {segment.file.path}"):
                keep_copy(segment, position, reason)
            self.truncate_to(offset)
        except CorruptBatchError:
            # Not even the way to it can be read.
            with storage_errors(f"keep what is damaged in {segment.file.path}"):
                keep_copy(segment, 0, reason)
            self.truncate_fully_and_start_at(self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Empty the log; it begins anew at `offset`. `loading` may be set as by `truncate_to`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._cancel_loading()
        with self._all_or_torn(f"empty {self.directory}"), self._truncations.running():
            self._forget_above(offset)
            self.segments.truncate_fully_and_start_at(offset, self.config)
            self._snapshots.forget(above=-1)
            for snapshot in snapshot_offsets(self.directory):
                offset_file(self.directory, snapshot, PRODUCER_SNAPSHOT_SUFFIX).unlink()
            self.log_start_offset = self.log_end_offset = offset
            self.producers.clear()
            self.epochs.clear()
            self._write_epochs()
        if offset < self.checkpointed_recovery_point:
            self._begin_loading()

    @contextmanager
    def _all_or_torn(self, action: str) -> Iterator[None]:
        """Turn an error during `action` into KAFKA_STORAGE_ERROR; files and memory are apart then."""
        try:
            yield
        except OSError as error:
            self._is_torn = True
            raise storage_error(action, error) from error

    def _forget_above(self, offset: Offset) -> None:
        """Let recovery begin at `offset` at the latest, whatever a running flush is about to say."""
        self.recovery_point = min(self.recovery_point, offset)
        self._snapshots.forget(above=offset)

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Make records below `offset` unreadable (DeleteRecords, retention at the leader).

        Returns whether the log start offset moved. Segments that lie wholly below go with the next
        `delete_old_segments`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE above the log end offset; KAFKA_STORAGE_ERROR.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: the log cannot start at {offset}, it ends at {self.log_end_offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self._write_epochs()
        return True

    def delete_old_segments(self, now_ms: TimestampMs, high_watermark: Offset) -> int:
        """Drop segments by retention time, size and log start offset; return how many.

        Their files are `delete_files_due`'s: it renames them with `.deleted`, and unlinks them after
        `file.delete.delay.ms`.

        Nothing goes while producers are being loaded: where that begins must stay.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.loading is not None:
            return 0
        segments = self.segments
        count = count_deletable(
            segments.all,
            self.config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if count == len(segments.all):
            self._roll(self.log_end_offset, now_ms)
        if count:
            self.advance_log_start_offset(segments.all[count].base_offset)
            segments.drop_first(count, self.config, now_ms)
            self._snapshots.forget(below=segments.all[0].base_offset, above=self.log_end_offset)
            self._metadata_unsynced = True
        return count

    def delete_files_due(self, now_ms: TimestampMs) -> int:
        """Rename files of dropped segments, unlink those whose delay is over; return how many. Off the loop.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._closed:
            return 0
        with storage_errors(f"delete files of {self.directory}"):
            return self.segments.delete_files_due(now_ms)

    def remove_expired_producers(self, now_ms: TimestampMs) -> int:
        """Forget producers that have been idle for producer.id.expiration.ms; return how many."""
        return self.producers.remove_expired(now_ms, self.config.producer_id_expiration_ms)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another configuration from now on (index sizes: from the next segment on)."""
        self.config = config

    # Keeping and leaving

    @property
    def is_intact(self) -> bool:
        """Whether its files are where they belong and say what is in memory, as far as that can be seen."""
        return not self._is_torn and self.directory.exists()

    @property
    def flush_due(self) -> bool:
        """Whether as many records as flush.messages says lie above the recovery point: call `flush`."""
        limit = self.config.flush_messages
        return limit is not None and self.log_end_offset - self.recovery_point >= limit

    @property
    def has_rolled(self) -> bool:
        """Whether something of a segment that is written to no more is not on the disk: `flush_rolled`."""
        return bool(self._snapshots) or self.recovery_point < min(
            self.segments.active.base_offset, self.log_end_offset
        )

    def flush(self) -> None:
        """fsync what lies above the recovery point and move it to where the log ended at the call.

        A failure of the disk is final: the system may have dropped what it could not write and call the next
        fsync good. Nothing is flushed of a log that was closed without.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, from the first failure of the disk on always.
        """
        self._flush(with_active=True)

    def flush_rolled(self) -> None:
        """`flush` all but the active segment, and move the recovery point to where that one begins.

        Raises:
            KafkaError: as `flush`.
        """
        self._flush(with_active=False)

    def _flush(self, *, with_active: bool) -> None:
        # One at a time: the recovery point must not pass what another thread is about to fsync.
        with self._flushing:
            if self._given_up:
                return
            if self._flush_failed is not None:
                raise self._flush_failed
            try:
                self._sync(with_active=with_active)
            except KafkaError as error:
                if self._given_up:
                    # The directory was renamed meanwhile, or the disk has failed: nobody counts on this log.
                    return
                if is_disk_error(error):
                    self._flush_failed = error
                raise

    def _sync(self, *, with_active: bool) -> None:
        with self._truncations.excluded() as truncations:
            end_offset = self.log_end_offset
            segments = self.segments.all
        if not with_active:
            end_offset = min(end_offset, segments[-1].base_offset)
        is_behind = end_offset > self.recovery_point or bool(self._snapshots)
        if not is_behind and not (with_active and self._metadata_unsynced):
            return
        unsynced = [segment for segment in segments if not segment.synced]
        if not with_active:
            unsynced = [segment for segment in unsynced if segment is not segments[-1]]
        with storage_errors(f"flush {self.directory}"):
            self._snapshots.write()
            for segment in unsynced:
                segment.flush(sealed=segment is not segments[-1])
            if self._metadata_unsynced:
                self._metadata_unsynced = False
                try:
                    sync_file(self.directory / LEADER_EPOCH_CHECKPOINT)
                    sync_directory(self.directory)
                except OSError:
                    self._metadata_unsynced = True
                    raise
            if self._is_new:
                sync_directory(self.directory.parent)
                self._is_new = False
        with self._truncations.excluded() as truncations_now:
            if truncations == truncations_now:
                for segment in unsynced:
                    segment.flushed(sealed=segment is not segments[-1])
                self.recovery_point = max(self.recovery_point, end_offset)

    def close(self, *, clean: bool = True) -> None:
        """Flush, write the producer snapshot, trim the indexes and close; `clean=False` only closes.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (it is closed all the same).
        """
        if self._closed:
            return
        self._closed = True
        self._given_up = not clean
        is_loaded = self.loading is None
        self._cancel_loading()
        try:
            if clean:
                with storage_errors(f"close the log in {self.directory}"):
                    self.segments.rename_dropped()
                    if is_loaded:
                        self._snapshots.add(self.log_end_offset, self.producers.capture())
                    self.segments.active.seal()
                    self.segments.active.truncated = True
                    self._metadata_unsynced = True
                    self.flush()
        finally:
            for segment in self.segments.all:
                segment.release()

    def rename_for_deletion(self) -> Path:
        """Close and rename the directory to `<topic>-<partition>.<unique>-delete`; return the new path.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self.rename_with_suffix("-delete")

    def rename_with_suffix(self, suffix: str) -> Path:
        """Close without flushing and rename the directory to `<topic>-<partition>.<unique><suffix>`.

        Long topic names are cut so that the name keeps within what file systems take.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.close(clean=False)
        target = self.directory.with_name(directory_name(self.topic_partition, uuid4(), suffix))
        with storage_errors(f"rename {self.directory}"):
            self.directory.rename(target)
        self.directory = target
        return target
