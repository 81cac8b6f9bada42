"""One partition's log: append, read, look up, truncate, roll, retain.

Threads: the methods that change a log (`append_as_*`, `truncate_*`, `advance_log_start_offset`, `roll`,
`delete_old_segments`, `reconfigure`) are for one thread at a time, normally the broker's event loop;
they do not fsync. `open`, `flush`, `delete_files_due`, `close` and `rename_for_deletion` may block for
long and belong off the loop; `flush`, `delete_files_due`, `read` and `offset_for_timestamp` are safe
beside an append.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from sparklog.storage.file_region import FileRegion
from sparklog.storage.leader_epochs import LeaderEpochs
from sparklog.storage.log_config import LogConfig
from sparklog.storage.producer_states import ProducerStates
from sparklog.types import LeaderEpoch, Offset, TimestampMs, TopicPartition

if TYPE_CHECKING:
    from sparklog.records.batch import BatchHeader

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5


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
    """The offset to read at after this region; the offset asked for when `region` is None."""


class OffsetAndTimestamp(NamedTuple):
    """The answer to a look-up by time."""

    offset: Offset
    timestamp_ms: TimestampMs | None
    """None for the special look-ups (LATEST, EARLIEST)."""
    leader_epoch: LeaderEpoch | None


class AbortedTransaction(NamedTuple):
    """What a read_committed consumer must skip."""

    producer_id: int
    first_offset: Offset


class Log:
    """The log of one partition in its directory `<topic>-<partition>`."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    directory: Path
    config: LogConfig
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        clean: bool = False,
        now_ms: int,
        topic_id: UUID | None = None,
    ) -> "Log":
        """Open or create the log in `directory`, recovering what lies above `recovery_point` unless `clean`.

        Blocking; off the loop. `topic_id` is written to `partition.metadata` when that is missing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        raise NotImplementedError

    def append_as_leader(
        self,
        records: bytes | memoryview,
        headers: list[BatchHeader],
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> AppendInfo:
        """Append validated batches, giving them offsets and `leader_epoch`.

        `headers` are those of `records`, as `records.batch.validate_produced` returned them. Checks the
        producer's sequence itself: a retry of a batch that is in the log is answered with
        `duplicate=True` and changes nothing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (nothing was appended), or what `ProducerStates.check` raises.
        """
        raise NotImplementedError

    def append_as_follower(self, records: bytes | memoryview) -> AppendInfo | None:
        """Append a leader's batches with the offsets and epochs they have; a partial last batch is left out.

        Returns None when there is not one whole batch.

        Raises:
            KafkaError: CORRUPT_MESSAGE (bad CRC, length or magic), OFFSET_OUT_OF_RANGE (the first batch
                lies below `log_end_offset`, or offsets do not rise), KAFKA_STORAGE_ERROR.
        """
        raise NotImplementedError

    def read(
        self, offset: Offset, *, max_bytes: int, up_to_offset: Offset, min_one_batch: bool = True
    ) -> ReadResult:
        """Return whole batches from the one that contains `offset`, all below `up_to_offset` (exclusive).

        At most `max_bytes`, unless `min_one_batch` and the first batch alone is larger. The first batch may
        begin below `offset`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset], KAFKA_STORAGE_ERROR.
        """
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int, high_watermark: Offset) -> OffsetAndTimestamp | None:
        """Return the first record at or after `timestamp_ms`, or what a special (negative) time stands for.

        None when there is none. LATEST answers `high_watermark` (pass the last stable offset for
        read_committed, the log end offset for a follower). Reads batch headers and, for one batch, the
        records: may block on a cold disk.
        """
        raise NotImplementedError

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return the end of what read_committed consumers may see; never above `high_watermark`."""
        raise NotImplementedError

    def aborted_transactions(self, offset: Offset, up_to_offset: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap [offset, up_to_offset)."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Bytes of record batches in all segments."""
        raise NotImplementedError

    def truncate_to(self, offset: Offset) -> bool:
        """Remove everything from `offset` on (from the start of the batch that contains it). True if anything went."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Empty the log; it begins anew at `offset`."""
        raise NotImplementedError

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Make records below `offset` unreadable (DeleteRecords, a leader's log start offset). True if it moved.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE above the log end offset.
        """
        raise NotImplementedError

    def roll(self, now_ms: int) -> None:
        """Begin a new active segment at the log end offset (nothing if the active one is empty)."""
        raise NotImplementedError

    def flush(self) -> None:
        """fsync what lies above the recovery point and move it to where the log ended at the call."""
        raise NotImplementedError

    def delete_old_segments(self, now_ms: int, high_watermark: Offset) -> int:
        """Drop segments by retention time, size and log start offset; return how many.

        Files are renamed with `.deleted` at once and unlinked by `delete_files_due` after
        `file.delete.delay.ms`.
        """
        raise NotImplementedError

    def delete_files_due(self, now_ms: int) -> int:
        """Unlink files whose delay is over; return how many. Off the loop."""
        raise NotImplementedError

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another configuration from now on."""
        raise NotImplementedError

    def close(self, *, clean: bool = True) -> None:
        """Flush, write the producer snapshot, trim the indexes and close; `clean=False` only closes."""
        raise NotImplementedError

    def rename_for_deletion(self) -> Path:
        """Close and rename the directory to `<topic>-<partition>.<unique>-delete`; return the new path."""
        raise NotImplementedError
