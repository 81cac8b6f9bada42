"""One partition's log: append, read, look up, truncate, roll, retain.

Threads: the methods that change a log (`append_as_*`, `assign_leader_epoch`, `truncate_*`,
`advance_log_start_offset`, `roll`, `delete_old_segments`, `remove_expired_producers`, `reconfigure`) are
for one thread at a time, normally the broker's event loop; none of them fsyncs. `open`, `flush`,
`delete_files_due`, `close` and `rename_for_deletion` may block for long and belong off the loop. `flush`,
`delete_files_due`, `read` and `offset_for_timestamp` are safe beside an append in another thread.

Rule kept: an append is in the log whole or not at all. On the disk for certain is only what lies below
`recovery_point`; the rest is for replication to vouch for (and for `flush`, where that does not do).
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import (
    HEADER_BYTES,
    STAMP_BYTES,
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
    stamp,
    stamp_with_append_time,
)
from sparklog.storage import time_lookup
from sparklog.storage.checkpoints import read_topic_id, write_leader_epochs, write_topic_id
from sparklog.storage.file_region import FileRegion
from sparklog.storage.files import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    offset_file,
    storage_error,
    storage_errors,
    sync_directory,
    sync_file,
)
from sparklog.storage.log_config import LogConfig
from sparklog.storage.producer_replay import apply_batch, load_producers
from sparklog.storage.producer_snapshots import encode_snapshot, snapshot_offsets
from sparklog.storage.producer_states import Duplicate, ProducerStates
from sparklog.storage.recovery import LoadedLog, load_log
from sparklog.storage.retention import count_deletable
from sparklog.storage.segment import MAX_RELATIVE_OFFSET, Buffer, Segment
from sparklog.storage.time_lookup import OffsetAndTimestamp
from sparklog.types import LeaderEpoch, Offset, ProducerId, TimestampMs, TopicPartition

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
    "partition_of",
]

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5

_DIRECTORY_NAME_BYTES: Final = 255


class AppendInfo(NamedTuple):
    """Where an append went. Ends are inclusive only in `last_offset`, as in Kafka."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: TimestampMs | None
    """The time given to the records, where the topic says LogAppendTime; else None (-1 on the wire)."""
    log_start_offset: Offset
    duplicate: bool = False
    """Nothing was appended: an idempotent producer's retry of a batch that is in the log at these offsets."""


class ReadResult(NamedTuple):
    """Whole batches found by `Log.read`."""

    region: FileRegion | None
    """None: nothing to read below the limit (not an error)."""
    next_offset: Offset
    """Reading on from here misses nothing; the offset asked for when `region` is None."""


class AbortedTransaction(NamedTuple):
    """What a read_committed consumer must skip."""

    producer_id: ProducerId
    first_offset: Offset


def partition_of(directory_name: str) -> TopicPartition:
    """Return the partition that a directory `<topic>-<partition>` is for.

    Raises:
        ValueError: the name is not of that form.
    """
    topic, separator, partition = directory_name.rpartition("-")
    if not (topic and separator and partition.isascii() and partition.isdigit()):
        raise ValueError(f"{directory_name!r} is not <topic>-<partition>")
    return TopicPartition(topic, int(partition))


class Log:
    """The log of one partition in its directory `<topic>-<partition>`. Made by `Log.open`."""

    def __init__(self, directory: Path, config: LogConfig, topic_id: UUID | None, loaded: LoadedLog) -> None:
        self.directory = directory
        self.config = config
        self.topic_id = topic_id
        self.topic_partition = partition_of(directory.name)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read."""
        self.log_end_offset = loaded.log_end_offset
        """The offset the next record gets."""
        self.recovery_point = loaded.recovery_point
        """Everything below is on the disk."""
        self._segments = loaded.segments
        self._active = loaded.segments[-1]
        self._to_delete: list[tuple[TimestampMs, list[Path]]] = []
        # Guards the recovery point against a truncation during a flush.
        self._lock = Lock()
        self._truncations = 0
        self._metadata_unsynced = True
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        clean: bool = False,
        now_ms: TimestampMs,
        topic_id: UUID | None = None,
    ) -> "Log":
        """Open or create the log in `directory`, recovering what lies above `recovery_point` unless `clean`.

        Blocking; off the loop. `topic_id` is written to `partition.metadata` when that is missing.

        Raises:
            ValueError: the directory's name is not `<topic>-<partition>`.
            KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        partition_of(directory.name)
        with storage_errors(f"open the log in {directory}"):
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
                clean=clean,
                now_ms=now_ms,
            )
            return cls(directory, config, stored_id or topic_id, loaded)

    # Appending

    def append_as_leader(
        self,
        records: bytes | memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> AppendInfo:
        """Append validated batches, giving them offsets and `leader_epoch`.

        `headers` are those of `records`, as `records.batch.validate_produced` returned them. Checks the
        producer's sequence itself: a retry of a batch that is in the log is answered with
        `duplicate=True` and changes nothing. Under LogAppendTime the batches get `now_ms`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (nothing was appended), RECORD_LIST_TOO_LARGE (more than a
                segment holds), or what `ProducerStates.check` raises.
        """
        config = self.config
        base_offset = offset = self.log_end_offset
        view = memoryview(records)
        parts: list[Buffer] = []
        stamped: list[BatchHeader] = []
        position = 0
        max_timestamp_ms = -1
        for header in headers:
            if header.producer_id >= 0:
                outcome = self.producers.check(header)
                if type(outcome) is Duplicate:
                    return self._duplicate(outcome)
            end = position + header.batch_length + 12
            if config.log_append_time:
                prefix = stamp_with_append_time(offset, leader_epoch, header, view[position:end], now_ms)
                parts += (prefix, view[position + HEADER_BYTES : end])
                final = read_header(prefix)
            else:
                parts += (stamp(offset, leader_epoch, header), view[position + STAMP_BYTES : end])
                final = BatchHeader._make((offset, header[1], leader_epoch, *header[3:]))
            stamped.append(final)
            position = end
            offset += header.last_offset_delta + 1
            if final.max_timestamp > max_timestamp_ms:
                max_timestamp_ms = final.max_timestamp
        if position > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{position} bytes of records exceed segment.bytes, which is {config.segment_bytes}",
            )
        if self._must_roll(position, max_timestamp_ms, offset - 1, now_ms):
            self._roll(base_offset, now_ms)
        if leader_epoch != self.epochs.latest:
            self.assign_leader_epoch(leader_epoch)
        self._append(parts, position, stamped, view)
        return AppendInfo(
            base_offset, offset - 1, now_ms if config.log_append_time else None, self.log_start_offset
        )

    def _duplicate(self, known: Duplicate) -> AppendInfo:
        append_time_ms = known.append_time if self.config.log_append_time else None
        return AppendInfo(
            known.base_offset, known.last_offset, append_time_ms, self.log_start_offset, duplicate=True
        )

    def append_as_follower(self, records: bytes | memoryview) -> AppendInfo | None:
        """Append a leader's batches with the offsets and epochs they have; a partial last batch is left out.

        Returns None when there is not one whole batch. Offsets may have gaps (compaction).

        Raises:
            KafkaError: CORRUPT_MESSAGE (bad CRC, length or magic), OFFSET_OUT_OF_RANGE (the first batch
                begins below `log_end_offset`, or offsets do not rise), KAFKA_STORAGE_ERROR. Nothing was
                appended, except that before a KAFKA_STORAGE_ERROR whole batches may have been, up to
                `log_end_offset`.
        """
        view = memoryview(records)
        expected_offset = self.log_end_offset
        headers: list[BatchHeader] = []
        end = 0
        max_timestamp_ms = -1
        for position, header in iterate_headers(view):
            check_crc(view, position, header)
            if header.base_offset < expected_offset or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"{self.topic_partition}: offsets {header.base_offset} to {header.last_offset} "
                    f"cannot follow the log end offset {expected_offset}",
                )
            headers.append(header)
            expected_offset = header.base_offset + header.last_offset_delta + 1
            end = position + header.batch_length + 12
            if header.max_timestamp > max_timestamp_ms:
                max_timestamp_ms = header.max_timestamp
        if not headers:
            return None
        base_offset = headers[0].base_offset
        if self._active.size_bytes + end <= self.config.segment_bytes and not self._must_roll(
            end, max_timestamp_ms, expected_offset - 1, None
        ):
            self._append_run(view[:end], headers)
        else:
            self._append_over_rolls(view, headers)
        return AppendInfo(base_offset, expected_offset - 1, None, self.log_start_offset)

    def _append_over_rolls(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """Append batches that do not all go into the active segment."""
        run: list[BatchHeader] = []
        start = end = 0
        for header in headers:
            active = self._active
            size_bytes = header.size_bytes
            if run and (
                active.size_bytes + end - start + size_bytes > self.config.segment_bytes
                or header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            ):
                self._append_run(view[start:end], run)
                run, start = [], end
            if not run and self._must_roll(size_bytes, header.max_timestamp, header.last_offset, None):
                self._roll(header.base_offset, header.max_timestamp)
            run.append(header)
            end += size_bytes
        self._append_run(view[start:end], run)

    def _append_run(self, view: memoryview, headers: list[BatchHeader]) -> None:
        changed = False
        latest = self.epochs.latest
        for header in headers:
            leader_epoch = header.partition_leader_epoch
            if leader_epoch != latest and leader_epoch >= 0 and (latest is None or leader_epoch > latest):
                changed |= self.epochs.assign(leader_epoch, header.base_offset)
                latest = leader_epoch
        if changed:
            self._write_epochs()
        self._append([view], len(view), headers, view)

    def _append(
        self, parts: list[Buffer], total_bytes: int, headers: Sequence[BatchHeader], view: memoryview
    ) -> None:
        active = self._active
        try:
            active.append(parts, total_bytes, headers, self.config)
        except OSError as error:
            raise storage_error(f"append to {active.file.path}", error) from error
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                if header.is_control:
                    with storage_errors(f"append to {active.transaction_index.path}"):
                        apply_batch(
                            self.producers, header, view[position : position + header.size_bytes], active
                        )
                else:
                    self.producers.update(header)
            position += header.batch_length + 12
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

    # Reading

    def read(
        self, offset: Offset, *, max_bytes: int, up_to_offset: Offset, min_one_batch: bool = True
    ) -> ReadResult:
        """Return whole batches from the one that contains `offset`, all below `up_to_offset` (exclusive).

        At most `max_bytes`, unless `min_one_batch` and the first batch alone is larger. The first batch may
        begin below `offset`. A result ends with its segment at the latest.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset], CORRUPT_MESSAGE,
                KAFKA_STORAGE_ERROR.
        """
        segments = self._segments
        segment = segments[-1]
        # Before the log end offset, so that beside an append it is at most too small.
        end = segment.size_bytes
        log_end_offset = self.log_end_offset
        if offset > log_end_offset or offset < self.log_start_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: offset {offset} is outside "
                f"[{self.log_start_offset}, {log_end_offset}]",
            )
        if offset >= up_to_offset or offset == log_end_offset:
            return ReadResult(None, offset)
        number = len(segments)
        if offset < segment.base_offset:
            number = bisect_right(segments, offset, key=_base_offset)
            segment = segments[number - 1]
            end = segment.size_bytes
        try:
            while True:
                start = segment.position_of(offset)
                is_active = number == len(segments)
                segment_end_offset = log_end_offset if is_active else segments[number].base_offset
                if up_to_offset < segment_end_offset:
                    end = segment.position_of(up_to_offset)
                    segment_end_offset = up_to_offset
                if start < end:
                    break
                if is_active or segment_end_offset == up_to_offset:
                    return ReadResult(None, offset)
                segment = segments[number]
                number += 1
                end = segment.size_bytes
            region_end, next_offset = segment.whole_batches(
                start, start + max_bytes, end, min_one_batch=min_one_batch
            )
        except OSError as error:
            raise storage_error(f"read {segment.file.path}", error) from error
        if region_end <= start:
            return ReadResult(None, offset)
        if next_offset is None:
            next_offset = segment_end_offset
        segment.remember_position(next_offset, region_end)
        return ReadResult(FileRegion(segment.file, start, region_end - start), next_offset)

    def offset_for_timestamp(
        self, timestamp_ms: TimestampMs, high_watermark: Offset
    ) -> OffsetAndTimestamp | None:
        """Return the first record at or after `timestamp_ms`, or what a special (negative) time stands for.

        None when there is none below `high_watermark`. LATEST answers `high_watermark` itself: pass the
        last stable offset for read_committed, the log end offset for a follower. Without tiered storage
        EARLIEST_LOCAL is EARLIEST and LATEST_TIERED nothing. May block on a cold disk.

        Raises:
            KafkaError: UNSUPPORTED_VERSION for a special time not known here, CORRUPT_MESSAGE,
                KAFKA_STORAGE_ERROR.
        """
        if timestamp_ms == LATEST_TIMESTAMP:
            return OffsetAndTimestamp(high_watermark, None, self.epochs.latest)
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = self.log_start_offset
            return OffsetAndTimestamp(start, None, self.epochs.epoch_at(start))
        if timestamp_ms == LATEST_TIERED_TIMESTAMP:
            return None
        if timestamp_ms < MAX_TIMESTAMP:
            raise KafkaError(
                ErrorCode.unsupported_version, f"there is no special timestamp {timestamp_ms} in this version"
            )
        with storage_errors(f"look up a timestamp in {self.directory}"):
            if timestamp_ms == MAX_TIMESTAMP:
                found = time_lookup.latest(self._segments)
            else:
                found = time_lookup.first_at_or_after(self._segments, timestamp_ms, self.log_start_offset)
        return found if found is not None and found.offset < high_watermark else None

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return the end of what read_committed consumers may see; never above `high_watermark`."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    def aborted_transactions(self, offset: Offset, up_to_offset: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap [offset, up_to_offset), in the order of their markers.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        segments = self._segments
        first = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
        found: list[AbortedTransaction] = []
        with storage_errors(f"read a transaction index in {self.directory}"):
            for segment in segments[first:]:
                for entry in segment.transaction_index.entries():
                    if entry.last_offset >= offset and entry.first_offset < up_to_offset:
                        found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
                    if entry.last_stable_offset >= up_to_offset:
                        return found
        return found

    @property
    def first_segment_base_offset(self) -> Offset:
        """Where the files begin; the log start offset may lie above."""
        return self._segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of record batches in all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    # Rolling, truncating, retaining

    def _must_roll(
        self, more_bytes: int, max_timestamp_ms: TimestampMs, last_offset: Offset, now_ms: TimestampMs | None
    ) -> bool:
        """Say whether `more_bytes` need a new segment. `now_ms` counts where records have no timestamps."""
        active = self._active
        config = self.config
        if (
            active.size_bytes + more_bytes > config.segment_bytes
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.offset_index.is_full
            or active.time_index.is_full
        ):
            return active.size_bytes > 0 or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        if not active.size_bytes:
            return False
        first_timestamp_ms = active.first_timestamp()
        if first_timestamp_ms is not None and first_timestamp_ms >= 0:
            waited_ms = max_timestamp_ms - first_timestamp_ms
        elif now_ms is not None:
            waited_ms = now_ms - active.created_ms
        else:
            return False
        return waited_ms > config.segment_ms - active.roll_jitter_ms

    def roll(self, now_ms: TimestampMs) -> None:
        """Begin a new active segment at the log end offset (nothing if the active one is empty).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._active.size_bytes:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Begin a new segment at `base_offset`, which is the log end offset or above."""
        with storage_errors(f"roll {self._active.file.path}"):
            active = self._active
            kept = self._segments
            if active.size_bytes:
                active.seal()
                self._write_snapshot(base_offset, sync=False)
            else:
                # Nothing fits into it any more (offsets too far away).
                kept = kept[:-1]
                self._delete([active], now_ms)
            self._use((*kept, self._create_segment(base_offset, now_ms)))

    def _create_segment(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        config = self.config
        jitter_ms = random.randrange(config.segment_jitter_ms) if config.segment_jitter_ms > 0 else 0
        return Segment.create(
            self.directory,
            base_offset,
            config,
            now_ms=now_ms,
            roll_jitter_ms=min(jitter_ms, config.segment_ms),
        )

    def _use(self, segments: tuple[Segment, ...]) -> None:
        self._segments = segments
        self._active = segments[-1]
        self._metadata_unsynced = True

    def _write_snapshot(self, offset: Offset, *, sync: bool) -> None:
        path = offset_file(self.directory, offset, PRODUCER_SNAPSHOT_SUFFIX)
        path.write_bytes(encode_snapshot(self.producers))
        if sync:
            sync_file(path)

    def truncate_to(self, offset: Offset) -> bool:
        """Remove every batch that reaches to `offset` or above it; return whether anything went.

        Regions that were handed out above `offset` can no longer be sent in full.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with storage_errors(f"truncate {self.directory} to {offset}"):
            kept = tuple(segment for segment in self._segments if segment.base_offset <= offset)
            removed = self._segments[len(kept) :]
            self._forget_above(offset)
            self._use(kept)
            self._delete(removed, self._active.created_ms)
            self._active.truncate_to(offset, self.config)
            log_end_offset = self._active.reload_max_timestamp()
            self.log_end_offset = log_end_offset
            self.log_start_offset = min(self.log_start_offset, log_end_offset)
            if self.epochs.truncate_from_end(log_end_offset):
                self._write_epochs()
            if self.producers.producers:
                self.producers = self._reload_producers()
        return True

    def _reload_producers(self) -> ProducerStates:
        return load_producers(
            self.directory,
            self._segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            replay_from=self.log_end_offset,
        )

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Empty the log; it begins anew at `offset`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors(f"empty {self.directory}"):
            now_ms = self._active.created_ms
            self._forget_above(0)
            self._delete(self._segments, now_ms)
            for snapshot in snapshot_offsets(self.directory):
                offset_file(self.directory, snapshot, PRODUCER_SNAPSHOT_SUFFIX).unlink()
            self._use((self._create_segment(offset, now_ms),))
            self.log_start_offset = self.log_end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.producers.clear()
            self.epochs.clear()
            self._write_epochs()

    def _forget_above(self, offset: Offset) -> None:
        """Let recovery begin at `offset` at the latest, whatever a running flush is about to say."""
        with self._lock:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, offset)

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

        Files are renamed with `.deleted` at once and unlinked by `delete_files_due` after
        `file.delete.delay.ms`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        count = count_deletable(
            self._segments,
            self.config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return 0
        if count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        removed, kept = self._segments[:count], self._segments[count:]
        self.advance_log_start_offset(kept[0].base_offset)
        with storage_errors(f"delete segments of {self.directory}"):
            self._use(kept)
            self._delete(removed, now_ms)
        return count

    def _delete(self, segments: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Rename the files of segments that are no longer used, to be unlinked later."""
        paths: list[Path] = []
        for segment in segments:
            paths += segment.mark_deleted()
            snapshot = offset_file(self.directory, segment.base_offset, PRODUCER_SNAPSHOT_SUFFIX)
            if snapshot.exists():
                paths.append(snapshot.rename(snapshot.with_name(snapshot.name + DELETED_SUFFIX)))
        self._to_delete.append((now_ms + self.config.file_delete_delay_ms, paths))

    def delete_files_due(self, now_ms: TimestampMs) -> int:
        """Unlink files whose delay is over; return how many. Off the loop.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        due = [entry for entry in self._to_delete if entry[0] <= now_ms]
        count = 0
        with storage_errors(f"delete files of {self.directory}"):
            for entry in due:
                for path in entry[1]:
                    path.unlink(missing_ok=True)
                    count += 1
                self._to_delete.remove(entry)
        return count

    def remove_expired_producers(self, now_ms: TimestampMs) -> int:
        """Forget producers that have been idle for producer.id.expiration.ms; return how many."""
        return self.producers.remove_expired(now_ms, self.config.producer_id_expiration_ms)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another configuration from now on (index sizes: from the next segment on)."""
        self.config = config

    # Keeping and leaving

    @property
    def flush_due(self) -> bool:
        """Whether as many records as flush.messages says lie above the recovery point: call `flush`."""
        limit = self.config.flush_messages
        return limit is not None and self.log_end_offset - self.recovery_point >= limit

    def flush(self) -> None:
        """fsync what lies above the recovery point and move it to where the log ended at the call.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with self._lock:
            truncations = self._truncations
            log_end_offset = self.log_end_offset
            segments = self._segments
        if log_end_offset == self.recovery_point and not self._metadata_unsynced:
            return
        with storage_errors(f"flush {self.directory}"):
            for segment in segments:
                if not segment.synced:
                    sealed = segment is not segments[-1]
                    segment.flush(sealed=sealed)
                    if sealed:
                        sync_file(offset_file(self.directory, segment.base_offset, PRODUCER_SNAPSHOT_SUFFIX))
            if self._metadata_unsynced:
                self._metadata_unsynced = False
                sync_file(self.directory / LEADER_EPOCH_CHECKPOINT)
                sync_directory(self.directory)
        with self._lock:
            if truncations == self._truncations:
                self.recovery_point = max(self.recovery_point, log_end_offset)

    def close(self, *, clean: bool = True) -> None:
        """Flush, write the producer snapshot, trim the indexes and close; `clean=False` only closes.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (it is closed all the same).
        """
        if self._closed:
            return
        self._closed = True
        try:
            if clean:
                with storage_errors(f"close the log in {self.directory}"):
                    self._write_snapshot(self.log_end_offset, sync=True)
                    self._active.seal()
                    self._active.truncated = True
                    self._metadata_unsynced = True
                    self.flush()
        finally:
            for segment in self._segments:
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
        topic, partition = self.topic_partition
        full_suffix = f"-{partition}.{uuid4().hex}{suffix}"
        target = self.directory.with_name(topic[: _DIRECTORY_NAME_BYTES - len(full_suffix)] + full_suffix)
        with storage_errors(f"rename {self.directory}"):
            self.directory.rename(target)
        self.directory = target
        return target


def _base_offset(segment: Segment) -> Offset:
    return segment.base_offset
