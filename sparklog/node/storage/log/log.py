# Long because all that changes or reads a log shares its offsets, files, leader epochs and producers.
"""One partition's log: append, read, look up, truncate, flush, retain.

Threads: the methods that change a log (`append_as_*`, `assign_leader_epoch`, `truncate_*`, `cut_at`,
`advance_log_start_offset`, `roll`, `delete_old_segments`, `remove_expired_producers`, `reconfigure`) are
for one thread at a time, normally the broker's event loop; none of them fsyncs, except that an append does
`sync_identity` if its caller has not. `open`, `create_files`, `sync_identity`, `flush`, `flush_rolled`,
`delete_files_due`, `close` and `rename_with_suffix` may block for long and belong off the loop.
`create_files`, `sync_identity`, `flush`, `flush_rolled`, `delete_files_due`, and what reads (`read`,
`offset_for_timestamp`, `producers_at`, `aborted_transactions`) are safe beside any of the former in another
thread; with `cached_only`, for the thread that changes the log, a read waits for no disk.

Rules kept:
- An append is in the log whole or not at all.
- The topic id is on the disk before the first record. Otherwise a power cut could leave records of unknown
  origin, and the next topic of that name would take them for its own (Kafka's maybeFlushMetadataFile).
- The log of a new partition (`begin`) has no directory before its first record, or before anything else that
  a restart has to find: an absent directory and an empty log at offset 0 are the same. A broker begins
  thousands at a time.
- Only records below `recovery_point` are certain to be on the disk; replication guards the rest (and `flush`,
  where that does not suffice). A truncation moves the point back even if a flush is running.
- The owner of a log calls `flush_rolled` when it `has_rolled`, so that a start after a crash reads only the
  active segment.
- A truncation is cheap and done at once. The loss of producer state, or of checkpointed offsets, is repaired
  off the loop (`producer_loading`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from uuid import UUID, uuid4

from sparklog.node.storage.checkpoints import read_topic_id, write_leader_epochs, write_topic_id
from sparklog.node.storage.file_region import Buffer
from sparklog.node.storage.files import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_GAPS_MARKER,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    REBUILT_EPOCHS_MARKER,
    directory_name,
    is_disk_error,
    is_future_name,
    offset_file,
    partition_of,
    storage_error,
    storage_errors,
    sync_directory,
    sync_file,
)
from sparklog.node.storage.index.index_file import SegmentReleasedError
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.node.storage.machine.producer_states import Duplicate, ProducerStates, without_open_transactions
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.machine.retention import count_deletable
from sparklog.node.storage.machine.verification import Verification
from sparklog.node.storage.private_directories import make_private_directory
from sparklog.node.storage.producers.producer_loading import ProducerLoading
from sparklog.node.storage.producers.producer_replay import apply_batch, producers_at
from sparklog.node.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
    snapshot_offsets,
)
from sparklog.node.storage.producers.producer_undo import take_back
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.node.storage.producers.unwritten_snapshots import UnwrittenSnapshots
from sparklog.node.storage.recovery.new_log import new_log
from sparklog.node.storage.recovery.recovery import LoadedLog, load_log
from sparklog.node.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AppendInfo,
    OffsetMovedToTierError,
    ReadResult,
)
from sparklog.node.storage.segments import time_lookup
from sparklog.node.storage.segments.cut_files import keep_copy
from sparklog.node.storage.segments.segment import MAX_RELATIVE_OFFSET
from sparklog.node.storage.segments.segment_list import SegmentList, number_of
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    STAMP,
    STAMP_BYTES,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    iterate_headers,
    read_header,
    stamp_with_append_time,
)
from sparklog.protocol.types import AbortedTransaction, LeaderEpoch, Offset, TimestampMs

logger = logging.getLogger(__name__)

LAST_LEADER_EPOCH: Final[LeaderEpoch] = 2**31 - 1
"""The highest that a batch can have."""

T = TypeVar("T")


class Truncations:
    """Truncations of a log while other threads read it.

    A look-up holds no lock: it may wait for a disk, and appends must not wait for it. It counts truncations
    instead: if there was one meanwhile, its result may stem from the middle of the change, and it is
    repeated. Results from before appends and dropped segments remain true.
    """

    def __init__(self) -> None:
        self.begun = 0
        """Number of truncations so far."""
        self._running = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold up look-ups and flushes during a truncation."""
        with self._running:
            self.begun += 1
            yield

    @contextmanager
    def excluded(self) -> Iterator[int]:
        """Exclude truncations; yields their number so far."""
        with self._running:
            yield self.begun


class Log:
    """The log of one partition in its directory `<topic>-<partition>`. Made by `Log.open`."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        topic_id: UUID | None,
        loaded: LoadedLog,
        *,
        is_new: bool,
        before_files: Callable[[], None] | None = None,
    ) -> None:
        """Take the state of the files; `before_files` is called before they are created, None if they are."""
        self.directory = directory
        self.topic_partition = partition_of(directory.name)
        self.config = config
        """Changed by `reconfigure`."""
        self.segments = SegmentList(directory, loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.loading: ProducerLoading | None = None
        """Remaining work of the last truncation, None for none; see `truncate_to`."""
        self.snapshots = UnwrittenSnapshots(directory)
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read, here or in the tier."""
        self.log_start_is_guessed = loaded.log_start_is_guessed
        """Whether nothing has confirmed the start of a tiered log since a stop of the machine."""
        self.log_end_offset = loaded.log_end_offset
        """The offset of the next record."""
        self.recovery_point = loaded.recovery_point
        """All data below is fsynced."""
        self.checkpointed_recovery_point: Offset = 0
        """Highest recovery point that the checkpoint file may have for this log; set by the file's writer."""
        self.may_have_gaps = loaded.may_have_gaps
        self.gaps_are_noted = False
        """Whether the directory has the marker of offset gaps: recovery does not know the topic's
        configuration."""
        self.cleaned_offset: Offset | None = None
        """The offset below which a cleaning has read every record; None for a log that was never cleaned."""
        self.checkpointed_cleaned_offset: Offset = 0
        """Highest cleaned offset that the checkpoint file may have for this log."""
        self.truncations = Truncations()
        self.metadata_unsynced = True
        """Leader epochs or directory entries are not fsynced."""
        self.is_torn = False
        """Files and memory differ."""
        self.is_closed = False
        self.successor: Log | None = None
        """The log that has replaced this one, in another directory: pending readers continue there."""
        self.missing = loaded.missing
        """Reason for which recovery found records of this replica lost, for the log; None for nothing.

        The caller reports it to the controller before it counts this log as a replica, and then clears it.
        """
        self.checked_bytes = loaded.checked_bytes
        """Bytes that were read to recover it."""
        self.parent: Final = str(directory.parent)
        """The data directory; it does not change with the log's own name."""
        self.topic_id = topic_id
        """From partition.metadata; None without that file."""
        self.is_new = is_new
        """Whether its directory and its topic id may not be on the disk yet: call `flush_rolled`."""
        # A process that was killed before its fsync leaves an empty log that is not new.
        self.identity_unsynced = topic_id is not None and (is_new or not self.size_bytes)
        """Whether the first append has to fsync the topic id before: see `sync_identity`."""
        self._failure: KafkaError | None = None
        self._given_up = False
        self._flushing = Lock()
        self._before_files = before_files

    @classmethod
    def begin(
        cls,
        directory: Path,
        config: LogConfig,
        topic_id: UUID,
        *,
        stop: PreviousStop,
        now_ms: TimestampMs,
        before_files: Callable[[], None],
    ) -> "Log":
        """Begin the log of a new partition; `directory` is created with the first record, as is all in it.

        `before_files` is called before that, in the thread that creates the directory. Nothing blocks here.
        """
        loaded = new_log(directory, config, log_start_offset=None, stop=stop, now_ms=now_ms, has_files=False)
        return cls(directory, config, topic_id, loaded, is_new=False, before_files=before_files)

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: Offset = 0,
        log_start_offset: Offset | None = None,
        high_watermark: Offset = 0,
        cleaned_offset: Offset | None = None,
        stop: PreviousStop = PreviousStop.UNKNOWN,
        now_ms: TimestampMs,
        topic_id: UUID | None = None,
    ) -> "Log":
        """Open or create the log in `directory`; recover what is above `recovery_point` unless it was closed.

        Blocking; off the loop. The offsets are the last that were checkpointed (None: there is no entry).
        `topic_id` is written to `partition.metadata` when that is missing, and is on the disk after a flush.

        Raises:
            ValueError: the directory's name is not `<topic>-<partition>`.
            KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        partition_of(directory.name)
        with storage_errors(f"open the log in {directory}"):
            is_new = not directory.exists()
            if is_new:
                make_private_directory(directory)
            metadata = directory / PARTITION_METADATA
            begins = is_new and not recovery_point and not high_watermark and cleaned_offset is None
            stored_id = None if is_new else read_topic_id(metadata)
            if stored_id is None and topic_id is not None:
                # The first flush puts it on the disk: a broker makes thousands of logs at a time.
                write_topic_id(metadata, topic_id, sync=False)
                is_new = True
            elif topic_id is not None and stored_id != topic_id:
                raise KafkaError(
                    ErrorCode.inconsistent_topic_id,
                    f"{directory} belongs to topic id {stored_id}, not {topic_id}",
                )
            loaded = (
                new_log(directory, config, log_start_offset=log_start_offset, stop=stop, now_ms=now_ms)
                if begins
                else load_log(
                    directory,
                    config,
                    recovery_point=recovery_point,
                    log_start_offset=log_start_offset,
                    high_watermark=high_watermark,
                    cleaned_offset=cleaned_offset,
                    stop=stop,
                    now_ms=now_ms,
                )
            )
            log = cls(directory, config, stored_id or topic_id, loaded, is_new=is_new)
            log.checkpointed_recovery_point = recovery_point
            log.checkpointed_cleaned_offset = cleaned_offset or 0
            if cleaned_offset is not None and cleaned_offset > log.log_end_offset:
                logger.warning("%s ends before %d, up to where it was cleaned", directory, cleaned_offset)
                cleaned_offset = log.log_start_offset
            log.cleaned_offset = cleaned_offset
            return log

    @property
    def is_future(self) -> bool:
        """Whether it is an incomplete copy of a log in another directory, and no replica."""
        return is_future_name(self.directory.name)

    @property
    def first_segment_base_offset(self) -> Offset:
        """Base offset of the first segment; the log start offset may lie above, or below in the tier."""
        return self.segments.all[0].base_offset

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def truncation_count(self) -> int:
        """Number of truncations: bytes read before one may be gone after it."""
        return self.truncations.begun

    @property
    def has_files(self) -> bool:
        """Whether its directory was created, or found."""
        return self._before_files is None

    @property
    def is_intact(self) -> bool:
        """Whether its files are in place and agree with memory, as far as can be seen."""
        place = self.directory if self.has_files else self.directory.parent
        return not self.is_torn and place.exists()

    @property
    def local_log_start_offset(self) -> Offset:
        """The first readable offset of the files; the log start offset may lie below, in the tier."""
        return max(self.log_start_offset, self.segments.all[0].base_offset)

    @property
    def is_checkpointed_too_high(self) -> bool:
        """Whether recovery would trust records written after a truncation, or the cleaner skip them."""
        return (
            self.recovery_point < self.checkpointed_recovery_point
            or (self.cleaned_offset or 0) < self.checkpointed_cleaned_offset
        )

    # --- appending ------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytes | memoryview,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        verification: Verification | None = None,
        marker: EndTransactionMarker | None = None,
    ) -> AppendInfo:
        """Append a validated batch, assigning offsets and `leader_epoch`.

        `header` is that of `records`, as `records.batch.validate_produced` returned it. Checks the producer's
        sequence: a retry of a batch that is in the log returns `duplicate=True` and changes nothing. Under
        LogAppendTime the batch gets `now_ms`. The first batch of a transaction needs its `verification`;
        `marker` is the order from which a control batch was built.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (nothing was appended), RECORD_LIST_TOO_LARGE (more than a
                segment holds), or the error of `ProducerStates.check` or `check_marker`.
        """
        assert self.loading is None, f"{self.topic_partition} is still loading its producers"
        config = self.config
        if header.producer_id >= 0:
            if marker is None:
                verifies = config.transaction_partition_verification
                outcome = self.producers.check(header, verification, verifies=verifies)
                if type(outcome) is Duplicate:
                    return self._duplicate(outcome)
            else:
                self.producers.check_marker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.transaction_version,
                )
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
            parts = [STAMP.pack(base_offset, header.batch_length, leader_epoch), view[STAMP_BYTES:]]
            stamped = BatchHeader._make((base_offset, header[1], leader_epoch, *header[3:]))
        if self.segments.must_roll(config, size_bytes, stamped.max_timestamp, last_offset, now_ms):
            self.roll_at(base_offset, now_ms)
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

    def append_as_follower(
        self,
        records: bytes | memoryview,
        now_ms: TimestampMs,
        *,
        up_to_leader_epoch: LeaderEpoch = LAST_LEADER_EPOCH,
    ) -> AppendInfo | None:
        """Append a leader's batches with their offsets and epochs; a partial last batch is left out.

        So are the first batch of an epoch above `up_to_leader_epoch` and those after it. `now_ms` is the wall
        clock's, by which producers expire. Offsets may have gaps (compaction). The first batch of an empty
        log may begin below its end: the leader's log may start within a batch (DeleteRecords). Returns None
        if there is no whole batch.

        Raises:
            KafkaError: CORRUPT_MESSAGE (bad CRC, length or magic), OFFSET_OUT_OF_RANGE (the first batch
                begins below `log_end_offset`, or offsets do not rise), KAFKA_STORAGE_ERROR. Nothing was
                appended, except that before a KAFKA_STORAGE_ERROR whole batches may have been, up to
                `log_end_offset`.
        """
        assert self.loading is None, f"{self.topic_partition} is still loading its producers"
        view = memoryview(records)
        expected_offset = self.log_end_offset
        headers: list[BatchHeader] = []
        end = 0
        max_timestamp_ms = -1
        has_gaps = False
        begins_below = False
        for position, header in iterate_headers(view):
            if header.partition_leader_epoch > up_to_leader_epoch:
                break
            check_crc(view, position, header)
            if header.base_offset != expected_offset:
                if (
                    not headers
                    and header.base_offset < expected_offset <= header.last_offset
                    and self._is_empty()
                ):
                    begins_below = True
                    expected_offset = header.base_offset
                else:
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
        if has_gaps and not self.gaps_are_noted:
            self._note_gaps()
        base_offset = headers[0].base_offset
        if begins_below:
            self._begin_at(base_offset)
        if self.segments.active.size_bytes + end <= self.config.segment_bytes and not self.segments.must_roll(
            self.config, end, max_timestamp_ms, expected_offset - 1, None
        ):
            self._append_run(view[:end], headers, now_ms)
        else:
            self._append_over_rolls(view[:end], headers, now_ms)
        if begins_below and self.epochs.truncate_from_start(self.log_start_offset):
            self.write_epochs()
        return AppendInfo(base_offset, expected_offset - 1, None, self.log_start_offset)

    def _is_empty(self) -> bool:
        return self.local_log_start_offset == self.log_end_offset and not self.segments.size_bytes

    def _begin_at(self, offset: Offset) -> None:
        """Move the base offset of an empty log's files below its start."""
        with self.all_or_torn(f"begin {self.directory} at {offset}"), self.truncations.running():
            self.segments.truncate_fully_and_start_at(offset, self.config)
            self.recovery_point = min(self.recovery_point, offset)
            self.log_end_offset = offset

    def _note_gaps(self) -> None:
        """Mark the log as one with offset gaps, which recovery would otherwise take for damage."""
        self.create_files()
        with storage_errors(f"write {self.directory / OFFSET_GAPS_MARKER}"):
            (self.directory / OFFSET_GAPS_MARKER).touch()
        # The marker is on the disk before recovery trusts batches behind the gap.
        self.metadata_unsynced = True
        self.may_have_gaps = self.gaps_are_noted = True

    def _append_over_rolls(self, view: memoryview, headers: list[BatchHeader], now_ms: TimestampMs) -> None:
        """Append batches that do not all fit into the active segment."""
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
                self.roll_at(header.base_offset, now_ms)
            run.append(header)
            end += size_bytes
        self._append_run(view[start:end], run, now_ms)

    def _append_run(self, view: memoryview, headers: list[BatchHeader], now_ms: TimestampMs) -> None:
        changed = False
        latest, entries = self.epochs.latest, self.epochs.entries
        for header in headers:
            leader_epoch = header.partition_leader_epoch
            if leader_epoch != latest and leader_epoch >= 0 and (latest is None or leader_epoch > latest):
                changed |= self.epochs.assign(leader_epoch, header.base_offset)
                latest = leader_epoch
        if changed:
            self._write_assigned_epochs(entries)
        self._append([view], len(view), headers, view, now_ms)

    def _append(
        self,
        parts: list[Buffer],
        total_bytes: int,
        headers: Sequence[BatchHeader],
        view: memoryview,
        now_ms: TimestampMs,
    ) -> None:
        if self.identity_unsynced:
            self.sync_identity()
        active = self.segments.active
        try:
            active.append(parts, total_bytes, headers, self.config)
        except OSError as error:
            raise storage_error(f"append to {active.file.path}", error) from error
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    with self.all_or_torn(f"append to {active.transaction_index.path}"):
                        batch = view[position : position + header.size_bytes]
                        apply_batch(self.producers, header, batch, active, now_ms)
                else:
                    self.producers.update(header, now_ms)
            position += header.batch_length + LENGTH_OVERHEAD
        last = headers[-1]
        self.log_end_offset = last.base_offset + last.last_offset_delta + 1

    # --- leader epochs and segments -------------------------------------------------------------------

    def assign_leader_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Record that `leader_epoch` begins at the log end offset, when the broker becomes leader.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        entries = self.epochs.entries
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self._write_assigned_epochs(entries)

    def _write_assigned_epochs(self, before: Sequence[EpochEntry]) -> None:
        """Write the epochs; return to those `before` if that fails, so that the next append writes them.

        After a kill recovery takes a last batch of an epoch that the file lacks for a damaged one.
        """
        try:
            self.write_epochs()
        except KafkaError:
            self.epochs.replace(before)
            raise

    def write_epochs(self) -> None:
        """Write the leader epochs to their checkpoint file.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.create_files()
        # Not fsynced: after a crash of the machine recovery finds the epochs in the batches, and a flush
        # fsyncs before it lets recovery begin above them.
        write_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT, self.epochs.entries, sync=False)
        self.metadata_unsynced = True

    def roll(self, now_ms: TimestampMs) -> None:
        """Begin a new active segment at the log end offset (nothing if the active one is empty).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.segments.active.size_bytes:
            self.roll_at(self.log_end_offset, now_ms)

    def roll_at(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Begin a new segment at `base_offset`, the log end offset or above.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.create_files()
        with storage_errors(f"roll {self.segments.active.file.path}"):
            has_records = self.segments.active.size_bytes > 0
            self.segments.roll(base_offset, self.config, now_ms)
            if has_records:
                self.snapshots.add(base_offset, self.producers.capture())
            self.metadata_unsynced = True

    def skip_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """End at `offset`, with nothing between there and the last batch: all has been compacted away.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if offset > self.log_end_offset:
            self.roll_at(offset, now_ms)
            self.log_end_offset = offset

    @contextmanager
    def all_or_torn(self, action: str) -> Iterator[None]:
        """Turn an error during `action` into KAFKA_STORAGE_ERROR; mark files and memory as different."""
        try:
            yield
        except OSError as error:
            self.is_torn = True
            raise storage_error(action, error) from error
        except KafkaError as error:
            self.is_torn |= error.error_code is ErrorCode.kafka_storage_error
            raise

    # --- reading, in any thread -----------------------------------------------------------------------

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        up_to_offset: Offset,
        min_one_batch: bool = True,
        cached_only: bool = False,
    ) -> ReadResult:
        """Return whole batches from the one that contains `offset`, all below `up_to_offset` (exclusive).

        At most `max_bytes`, unless `min_one_batch` and the first batch alone is larger. The first batch may
        begin below `offset`. A result ends with its segment at the latest.

        Raises:
            NotCachedError: with `cached_only`, an index or header is not in memory.
            OffsetMovedToTierError: below the local log start offset.
            KafkaError: OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset], CORRUPT_MESSAGE,
                KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (the log was closed).
        """
        if offset < self.log_start_offset:
            raise self._not_here(offset)
        try:
            if cached_only:
                result = self.segments.read(
                    offset,
                    max_bytes=max_bytes,
                    up_to_offset=up_to_offset,
                    min_one_batch=min_one_batch,
                    cached_only=True,
                )
            else:
                result = self._look_up(
                    lambda state: state.segments.read(
                        offset, max_bytes=max_bytes, up_to_offset=up_to_offset, min_one_batch=min_one_batch
                    )
                )
        except OSError as error:
            raise storage_error(f"read {self.directory}", error) from error
        if result is None:
            raise self._not_here(offset)
        return result

    def _look_up(self, look: Callable[["Log"], T]) -> T:
        """Return the result of `look`, repeated until no truncation or released segment interfered.

        If another log replaced a closed one, the successor is queried.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: the log was closed.
        """
        state: Log | None = self
        while state is not None:
            if state.is_closed:
                state = state.successor
                continue
            with state.truncations.excluded() as before:
                pass
            try:
                found = look(state)
            except SegmentReleasedError:
                continue
            except (CorruptBatchError, OSError):
                # Of a log that was closed meanwhile the directory may have another name by now.
                if state.truncations.begun == before and not state.is_closed:
                    raise
            else:
                if state.truncations.begun == before:
                    return found
        raise self._closed()

    def _not_here(self, offset: Offset) -> KafkaError:
        if self.log_start_offset <= offset < self.local_log_start_offset:
            return OffsetMovedToTierError(self.topic_partition, offset, self.local_log_start_offset)
        return KafkaError(
            ErrorCode.offset_out_of_range,
            f"{self.topic_partition}: offset {offset} is outside "
            f"[{self.log_start_offset}, {self.log_end_offset}]",
        )

    def offset_for_timestamp(
        self, timestamp_ms: TimestampMs, high_watermark: Offset
    ) -> OffsetAndTimestamp | None:
        """Return the first record at or after `timestamp_ms`, or the offset of a special timestamp (< 0).

        None if there is none below `high_watermark`. LATEST answers `high_watermark` itself: pass the last
        stable offset for read_committed, the log end offset for a follower. Without tiered storage
        EARLIEST_LOCAL equals EARLIEST and LATEST_TIERED gives None. May block on a cold disk.

        Raises:
            KafkaError: UNSUPPORTED_VERSION for an unknown special timestamp, CORRUPT_MESSAGE,
                KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (the log was closed).
        """
        if timestamp_ms == LATEST_TIMESTAMP:
            return OffsetAndTimestamp(high_watermark, None, self.epochs.latest)
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            is_local = timestamp_ms == EARLIEST_LOCAL_TIMESTAMP
            start = self.local_log_start_offset if is_local else self.log_start_offset
            return OffsetAndTimestamp(start, None, self.epochs.epoch_at(start))
        if timestamp_ms == LATEST_TIERED_TIMESTAMP:
            return None
        if timestamp_ms < MAX_TIMESTAMP:
            raise KafkaError(
                ErrorCode.unsupported_version, f"there is no special timestamp {timestamp_ms} in this version"
            )
        with storage_errors(f"look up a timestamp in {self.directory}"):
            if timestamp_ms == MAX_TIMESTAMP:
                found = self._look_up(lambda state: time_lookup.latest(state.segments.all))
            else:
                found = self._look_up(
                    lambda state: time_lookup.first_at_or_after(
                        state.segments.all, timestamp_ms, state.log_start_offset
                    )
                )
        return found if found is not None and found.offset < high_watermark else None

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Return the largest epoch of this log up to `leader_epoch`, and its exclusive end offset.

        For an epoch older than all known ones: itself, and the start offset of the oldest. None without any.
        """
        latest = self.epochs.latest
        if latest is not None and leader_epoch >= latest:
            # Later epochs have written nothing here.
            return latest, self.log_end_offset
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return the exclusive end for read_committed consumers: at most `high_watermark`.

        At least the log start offset, even if an open transaction begins below it.
        """
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(max(first_unstable, self.log_start_offset), high_watermark)

    def producers_at(self, end_offset: Offset, now_ms: TimestampMs) -> ProducerStates:
        """Return the producers as of `end_offset`, where a batch ends. Blocks; in any thread.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (the log was closed).
            CorruptBatchError: the log is damaged.
        """

        def look(state: Log) -> ProducerStates:
            # The snapshot of the last roll saves a segment's reading.
            state.snapshots.write()
            return producers_at(state.directory, state.segments.all, end_offset, now_ms)

        with storage_errors(f"read the producers of {self.directory}"):
            return self._look_up(look)

    def aborted_transactions(
        self, offset: Offset, up_to_offset: Offset, *, cached_only: bool = False
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap [offset, up_to_offset), in the order of their markers.

        Only segments with entries are read, up to the first entry whose last stable offset reaches
        `up_to_offset`.

        Raises:
            NotCachedError: with `cached_only`, the answer is not in memory.
            KafkaError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (the log was closed).
        """

        def look(state: Log) -> list[AbortedTransaction]:
            segments = state.segments.all
            found: list[AbortedTransaction] = []
            for segment in segments[number_of(segments, offset) :]:
                index = segment.transaction_index
                if index.entry_count:
                    entries, is_complete = index.overlapping(offset, up_to_offset, cached_only=cached_only)
                    found += (AbortedTransaction(entry.producer_id, entry.first_offset) for entry in entries)
                    if is_complete:
                        break
            return found

        with storage_errors(f"read a transaction index in {self.directory}"):
            return look(self) if cached_only else self._look_up(look)

    # --- truncating -----------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> bool:
        """Remove every batch that reaches to `offset` or above; return whether any was removed.

        Regions above `offset` that were handed out can no longer be sent in full. If removed batches had
        changed producer state that cannot be taken back (`producer_undo`), or a checkpoint lies above the new
        end, `loading` is set: nothing may be appended until the caller has run it off the loop, has lowered
        those checkpoints, and has passed the result to `take_producers`.

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
        if not was_loading and self.producers.end_offset > offset:
            # Producers that are not taken back still end above the cut.
            take_back(self.producers, self.segments.active, offset)
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
        self.create_files()
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

    # --- flushing, in one thread beside the one that changes the log ----------------------------------

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages or more records lie above the recovery point: call `flush`."""
        limit = self.config.flush_messages
        return limit is not None and self.log_end_offset - self.recovery_point >= limit

    @property
    def has_rolled(self) -> bool:
        """Whether a sealed segment or a snapshot is not fsynced yet: call `flush_rolled`."""
        return bool(self.snapshots) or self.recovery_point < min(
            self.segments.active.base_offset, self.log_end_offset
        )

    def flush(self) -> None:
        """fsync the data above the recovery point; move the point to the log end offset at the call.

        A disk failure is final: the system may have dropped the data and report success for the next fsync. A
        log that was closed without a flush is not flushed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, always after the first disk failure.
        """
        self._flush(partial(self._sync, with_active=True))

    def flush_rolled(self) -> None:
        """`flush` all but the active segment, and move the recovery point to its base offset.

        Raises:
            KafkaError: as `flush`.
        """
        self._flush(partial(self._sync, with_active=False))

    def create_files(self) -> None:
        """Create the directory and the files of a log that was begun without; nothing is fsynced.

        Raises:
            KafkaError: as `flush`; without an error of the system: something else has the directory's name;
                NOT_LEADER_OR_FOLLOWER: the log was closed without files.
        """
        if self._before_files is not None:
            self._flush(self._create_files)

    def sync_identity(self) -> None:
        """fsync the topic id and the directory of a new log, as must be before its first append.

        They are created before, if they are not there.

        Raises:
            KafkaError: as `create_files`.
        """
        self._flush(self._sync_identity)

    def _flush(self, sync: Callable[[], None]) -> None:
        # One at a time: the recovery point must not pass data that another thread is about to fsync.
        with self._flushing:
            if self._given_up:
                return
            if self._failure is not None:
                raise self._failure
            try:
                sync()
            except KafkaError as error:
                if self._given_up:
                    # The directory was renamed meanwhile, or the disk has failed: the log is abandoned.
                    return
                if is_disk_error(error):
                    self._failure = error
                raise

    def _create_files(self) -> None:
        if self._before_files is None:
            return
        if self.is_closed:
            # A late thread must not create what the directory's next owner creates.
            raise self._closed()
        with storage_errors(f"create {self.directory}"):
            self._before_files()
            try:
                # A missing data directory must not come back as an empty one.
                make_private_directory(self.directory, with_parents=False)
                self._name_directory()
                self.segments.active.file.create()
            except FileExistsError as error:
                raise self._taken(str(error)) from None
        self.is_new, self._before_files = True, None

    def _closed(self) -> KafkaError:
        return KafkaError(ErrorCode.not_leader_or_follower, f"{self.topic_partition}: the log is closed")

    def _name_directory(self) -> None:
        metadata = self.directory / PARTITION_METADATA
        stored_id = read_topic_id(metadata)  # of an attempt that the system refused half-way
        if stored_id is None and self.topic_id is not None:
            write_topic_id(metadata, self.topic_id, sync=False)
        elif stored_id != self.topic_id:
            raise self._taken(f"it belongs to topic id {stored_id}, not {self.topic_id}")

    def _taken(self, reason: str) -> KafkaError:
        # No retry helps before a start has removed what lies there: the replica goes, and others lead.
        return KafkaError(ErrorCode.kafka_storage_error, f"cannot create {self.directory}: {reason}")

    def _sync_identity(self) -> None:
        if not self.identity_unsynced:
            return
        self._create_files()
        with storage_errors(f"flush the topic id of {self.directory}"):
            sync_file(self.directory / PARTITION_METADATA)
            sync_directory(self.directory)
            sync_directory(self.directory.parent)
        self.is_new = self.identity_unsynced = False

    def _sync(self, *, with_active: bool) -> None:
        if not self.has_files:
            return
        with self.truncations.excluded() as truncations:
            end_offset = self.log_end_offset
            segments = self.segments.all
        if not with_active:
            end_offset = min(end_offset, segments[-1].base_offset)
        is_behind = end_offset > self.recovery_point or bool(self.snapshots) or self.is_new
        if not is_behind and not (with_active and self.metadata_unsynced):
            return
        unsynced = [segment for segment in segments if not segment.synced]
        if not with_active:
            unsynced = [segment for segment in unsynced if segment is not segments[-1]]
        with storage_errors(f"flush {self.directory}"):
            self.snapshots.write()
            for segment in unsynced:
                segment.flush(sealed=segment is not segments[-1])
            if self.metadata_unsynced or self.is_new:
                self.metadata_unsynced = False
                try:
                    sync_file(self.directory / LEADER_EPOCH_CHECKPOINT)
                    if self.is_new:
                        # By now the directory may be that of another log of the same name.
                        sync_file(self.directory / PARTITION_METADATA)
                    sync_directory(self.directory)
                except OSError:
                    self.metadata_unsynced = True
                    raise
            if self.is_new:
                sync_directory(self.directory.parent)
                self.is_new = self.identity_unsynced = False
        with self.truncations.excluded() as truncations_now:
            if truncations == truncations_now:
                for segment in unsynced:
                    segment.flushed(sealed=segment is not segments[-1])
                self.recovery_point = max(self.recovery_point, end_offset)

    def _give_up(self) -> None:
        """Stop flushing: the log is closed without a flush, and another log may get its directory."""
        self._given_up = True
        self.snapshots.close()

    # --- retention and configuration ------------------------------------------------------------------

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
        self.log_start_is_guessed = False
        if self.epochs.truncate_from_start(offset):
            self.write_epochs()
            with storage_errors(f"remove {self.directory / REBUILT_EPOCHS_MARKER}"):
                (self.directory / REBUILT_EPOCHS_MARKER).unlink(missing_ok=True)
        return True

    def delete_old_segments(
        self,
        now_ms: TimestampMs,
        high_watermark: Offset,
        *,
        only_below_start: bool = False,
        tiered_end: Offset | None = None,
    ) -> int:
        """Drop segments by retention time, size and log start offset; return how many.

        A follower drops `only_below_start`, or else its log would begin above its leader's. Of a tiered log
        every replica drops by local retention what lies below `tiered_end`, the end of the tier's part (None:
        not known); its log start offset stays. Once a log is not tiered any more, and the tier's part is
        deleted, the leader's begins with its first segment.

        Their files are `delete_files_due`'s: it renames them with `.deleted`, and unlinks them after
        `file.delete.delay.ms`.

        Nothing is dropped while producers are being loaded: the first segment to read must stay.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.loading is not None:
            return 0
        segments = self.segments
        count = self._count_deletable(now_ms, high_watermark, only_below_start, tiered_end)
        if count == len(segments.all):
            self.roll_at(self.log_end_offset, now_ms)
        lost_tier = self.config.remote_delete_on_disable and not self.config.remote_storage_enable
        if (count and not self.config.is_cut_by_local_retention) or (lost_tier and not only_below_start):
            self.advance_log_start_offset(segments.all[count].base_offset)
        if count:
            segments.drop_first(count, self.config, now_ms)
            self.snapshots.forget(below=segments.all[0].base_offset, above=self.log_end_offset)
            self.metadata_unsynced = True
        return count

    def has_old_segments(self, now_ms: TimestampMs, high_watermark: Offset) -> bool:
        """Whether local retention would delete segments of this tiered log if the tier had all of it."""
        if not self.config.is_cut_by_local_retention:
            return False
        return self._count_deletable(now_ms, high_watermark, False, high_watermark) > 0

    def _count_deletable(
        self, now_ms: TimestampMs, high_watermark: Offset, only_below_start: bool, tiered_end: Offset | None
    ) -> int:
        return count_deletable(
            self.segments.all,
            self.config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
            only_below_start=only_below_start,
            tiered_end=tiered_end,
        )

    def delete_files_due(self, now_ms: TimestampMs) -> int:
        """Rename files of dropped segments, unlink those whose delay is over; return how many. Off the loop.

        Their producers are written before, since a start after a kill finds no other state of them.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors(f"delete files of {self.directory}"):
            self.snapshots.write()
            return self.segments.delete_files_due(now_ms)

    def remove_expired_producers(self, now_ms: TimestampMs) -> Iterator[int]:
        """Remove producers idle for producer.id.expiration.ms; yield the number of each step."""
        return self.producers.remove_expired(now_ms, self.config.producer_id_expiration_ms)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Take the id of the partition's topic over, of which a power cut has left no file.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        write_topic_id(self.directory / PARTITION_METADATA, topic_id, sync=False)
        self.topic_id = topic_id
        self.is_new = self.identity_unsynced = True

    def reconfigure(self, config: LogConfig) -> None:
        """Use another configuration from now on (index sizes: from the next segment on)."""
        self.config = config

    # --- closing and moving ---------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Flush, write the producer snapshot, trim the indexes and close; `clean=False` only closes.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (it is closed all the same).
        """
        if self.is_closed:
            return
        self.is_closed = True
        is_loaded = self.loading is None
        self._cancel_loading()
        try:
            if clean:
                with storage_errors(f"close the log in {self.directory}"):
                    self.segments.rename_files_due()
                    if not self._never_had_records:
                        if is_loaded:
                            self.snapshots.add(self.log_end_offset, self.producers.capture())
                        self.segments.active.seal()
                        self.segments.active.truncated = True
                        self.metadata_unsynced = True
                        self.flush()
            else:
                self._give_up()
        finally:
            self.segments.close()

    @property
    def _never_had_records(self) -> bool:
        """Whether a power cut could take nothing from this log but its name: it is made again then."""
        return self.identity_unsynced and not self.log_end_offset and not self.size_bytes

    def promote(self) -> None:
        """Rename a future log's directory to that of its partition, which must not exist. Nothing is fsynced.

        A future log has a directory `<topic>-<partition>.<unique>-future`, as in Kafka, and is not a replica
        until then. Rule kept: that is one rename, so a crash leaves either the old log, with a future log
        that can be deleted or completed, or two logs of the partition, of which the complete one is the one
        reported to the controller before. No other thread may use the log meanwhile.

        Source: Kafka's LogManager.replaceCurrentWithFutureLog; KIP-113.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; it is still a future log.
        """
        directory = self.directory.with_name(str(self.topic_partition))
        with storage_errors(f"rename {self.directory} to {directory}"):
            self.directory.rename(directory)
        self.directory = directory
        self.segments.move_to(directory)
        self.snapshots.move_to(directory)
        self.metadata_unsynced = True

    def take_place_of(self, current: "Log") -> None:
        """Make a future log, which has caught up with the current one, the log of its partition.

        It takes over the state that its batches lack: producers whose batches are gone, and the cleaned
        offset. Pending look-ups in the closed log continue in this one; deleting it is the caller's.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; nothing has changed.
        """
        assert self.log_end_offset == current.log_end_offset, f"{self.directory} lacks records"
        self.promote()
        self.producers = current.producers
        self.cleaned_offset = current.cleaned_offset
        self.config = current.config
        current.successor = self

    def rename_with_suffix(self, suffix: str) -> Path | None:
        """Close without flushing and rename the directory to `<topic>-<partition>.<unique><suffix>`.

        Long topic names are cut so that the name keeps within what file systems take. Returns the new path;
        None if there is no directory.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.close(clean=False)
        target = self.directory.with_name(directory_name(self.topic_partition, uuid4(), suffix))
        with storage_errors(f"rename {self.directory}"):
            # Another thread may be about to create the directory.
            with self._flushing:
                if not self.has_files and not self.directory.exists():
                    return None
            self.directory.rename(target)
        self.directory = target
        return target


def _epochs_within(
    leader_epochs: Iterable[tuple[LeaderEpoch, Offset]], start_offset: Offset, end_offset: Offset
) -> Sequence[EpochEntry]:
    epochs = LeaderEpochs(EpochEntry(*entry) for entry in leader_epochs)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    return epochs.entries
