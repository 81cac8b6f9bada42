"""One partition's log: append, read, look up, truncate, roll, retain.

Threads: the methods that change a log (`append_as_*`, `assign_leader_epoch`, `truncate_*`, `cut_at`,
`advance_log_start_offset`, `roll`, `delete_old_segments`, `remove_expired_producers`, `reconfigure`) are
for one thread at a time, normally the broker's event loop; none of them fsyncs. `open`, `flush`,
`flush_rolled`, `delete_files_due`, `close` and `rename_with_suffix` may block for long and belong off the
loop. `flush`, `flush_rolled`, `delete_files_due`, `read` and `offset_for_timestamp` are safe beside any of
the former in another thread.

Rule kept: an append is in the log whole or not at all. Only records below `recovery_point` are certain to be
on the disk; replication guards the rest (and `flush`, where that does not suffice).
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from sparklog.node.storage.checkpoints import read_topic_id, write_topic_id
from sparklog.node.storage.files import (
    PARTITION_METADATA,
    REBUILT_EPOCHS_MARKER,
    directory_name,
    is_future_name,
    partition_of,
    storage_errors,
)
from sparklog.node.storage.log.log_appends import LogAppends
from sparklog.node.storage.log.log_cleaning import LogCleaning
from sparklog.node.storage.log.log_flushing import LogFlushing
from sparklog.node.storage.log.log_reads import LogReads
from sparklog.node.storage.log.log_succession import promote, take_place
from sparklog.node.storage.log.log_truncation import LogTruncation
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.machine.retention import count_deletable
from sparklog.node.storage.private_directories import make_private_directory
from sparklog.node.storage.recovery.recovery import LoadedLog, load_log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TimestampMs

logger = logging.getLogger(__name__)


class Log(LogAppends, LogReads, LogTruncation, LogFlushing):
    """The log of one partition in its directory `<topic>-<partition>`. Made by `Log.open`.

    Its attributes are those of `LogState`. Appending, reading, truncating and flushing are in files of their
    own, each of which knows the state and nothing of the others. Rolling, deleting, closing and renaming are
    here.
    """

    def __init__(
        self, directory: Path, config: LogConfig, topic_id: UUID | None, loaded: LoadedLog, *, is_new: bool
    ) -> None:
        self.missing = loaded.missing
        """Reason for which recovery found records of this replica lost, for the log; None for nothing.

        The caller reports it to the controller before it counts this log as a replica, and then clears it.
        """
        self.checked_bytes = loaded.checked_bytes
        """Bytes that were read to recover it."""
        super().__init__(directory, config, loaded, is_new=is_new)
        self.parent: Final = str(directory.parent)
        """The data directory; it does not change with the log's own name."""
        self.topic_id = topic_id
        """From partition.metadata; None without that file."""

    @property
    def cleaning(self) -> LogCleaning:
        """Return the work of its cleaning; not kept, since the two would keep each other's files open."""
        return LogCleaning(self)

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
        `topic_id` is written to `partition.metadata` when that is missing.

        Raises:
            ValueError: the directory's name is not `<topic>-<partition>`.
            KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        partition_of(directory.name)
        with storage_errors(f"open the log in {directory}"):
            is_new = not directory.exists()
            make_private_directory(directory)
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
                cleaned_offset=cleaned_offset,
                stop=stop,
                now_ms=now_ms,
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
    def is_intact(self) -> bool:
        """Whether its files are in place and agree with memory, as far as can be seen."""
        return not self.is_torn and self.directory.exists()

    def roll(self, now_ms: TimestampMs) -> None:
        """Begin a new active segment at the log end offset (nothing if the active one is empty).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.segments.active.size_bytes:
            self.roll_at(self.log_end_offset, now_ms)

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

    def reconfigure(self, config: LogConfig) -> None:
        """Use another configuration from now on (index sizes: from the next segment on)."""
        self.config = config

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

    def skip_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """End at `offset`, with nothing between there and the last batch: all has been compacted away.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if offset > self.log_end_offset:
            self.roll_at(offset, now_ms)
            self.log_end_offset = offset

    def promote(self) -> None:
        """Become the log of the partition, which has no other (`log_succession`).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        promote(self)

    def take_place_of(self, current: "Log") -> None:
        """Become the log of the partition instead of `current`, for the caller to delete (`log_succession`).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; nothing has changed.
        """
        take_place(self, current)

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
