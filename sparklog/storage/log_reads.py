"""The half of a log that answers and changes nothing: reading by offset, looking up by time.

`read` and `offset_for_timestamp` are safe beside an append in another thread.
"""

from pathlib import Path
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.storage import time_lookup
from sparklog.storage.files import partition_of, storage_error, storage_errors
from sparklog.storage.log_config import LogConfig
from sparklog.storage.recovery import LoadedLog
from sparklog.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AbortedTransaction,
    ReadResult,
)
from sparklog.storage.segment_list import SegmentList
from sparklog.storage.time_lookup import OffsetAndTimestamp
from sparklog.types import Offset, TimestampMs


class LogReads:
    """What can be asked of a log. Only `Log` is made of it."""

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
        self.segments = SegmentList(directory, loaded.segments)

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
        if offset < self.log_start_offset:
            raise self._out_of_range(offset)
        try:
            result = self.segments.read(
                offset, max_bytes=max_bytes, up_to_offset=up_to_offset, min_one_batch=min_one_batch
            )
        except OSError as error:
            raise storage_error(f"read {self.directory}", error) from error
        if result is None:
            raise self._out_of_range(offset)
        return result

    def _out_of_range(self, offset: Offset) -> KafkaError:
        return KafkaError(
            ErrorCode.offset_out_of_range,
            f"{self.topic_partition}: offset {offset} is outside "
            f"[{self.log_start_offset}, {self.log_end_offset}]",
        )

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
                found = time_lookup.latest(self.segments.all)
            else:
                found = time_lookup.first_at_or_after(self.segments.all, timestamp_ms, self.log_start_offset)
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
        first = self.segments.number_of(offset)
        found: list[AbortedTransaction] = []
        with storage_errors(f"read a transaction index in {self.directory}"):
            for segment in self.segments.all[first:]:
                for entry in segment.transaction_index.entries():
                    if entry.last_offset >= offset and entry.first_offset < up_to_offset:
                        found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
                    if entry.last_stable_offset >= up_to_offset:
                        return found
        return found

    @property
    def first_segment_base_offset(self) -> Offset:
        """Where the files begin; the log start offset may lie above."""
        return self.segments.all[0].base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of record batches in all segments."""
        return self.segments.size_bytes
