"""A log's part in its cleaning: the request, and the take-over of the cleaned segments.

The cleaning itself works on the files (`cleaning`). Order for the caller: `request`; run the cleaning;
`open_cleaned` each group off the loop, in order; `replace` each in order on the loop, and stop at the first
refusal; `rename_files` off the loop; `note_cleaned`.

Rules kept: a group is refused if one of its source segments is gone, or if the log was truncated meanwhile.
The order of groups matters: a tombstone must not go before the records that it deletes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sparklog.node.storage.cleaning.request import CleanedGroup, CleaningRequest, LastBatch
from sparklog.node.storage.file_region import LogFile
from sparklog.node.storage.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_GAPS_MARKER,
    SEGMENT_SUFFIXES,
    offset_file,
    storage_errors,
    sync_directory,
)
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.segment_groups import SealedSegment
from sparklog.node.storage.segments.segment import Segment
from sparklog.node.storage.segments.segment_list import number_of
from sparklog.node.storage.segments.segment_recovery import indexes_are_sound
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TimestampMs


class CleaningLimits(NamedTuple):
    dedupe_buffer_bytes: int
    load_factor: float
    max_bytes_a_second: float | None
    window_bytes: int
    max_decompressed_bytes: int


class LogCleaning:
    def __init__(self, log: Log) -> None:
        self._log = log

    def request(
        self, first_dirty_offset: Offset, end_offset: Offset, limits: CleaningLimits, now_ms: TimestampMs
    ) -> tuple[CleaningRequest, int]:
        """Return the request for a cleaning, and the number of truncations so far, for `replace`.

        `end_offset` is at or below the active segment's base offset. For the thread that changes the log.
        """
        log = self._log
        segments = log.segments.all
        count = number_of(segments, end_offset - 1) + 1
        config = log.config
        return CleaningRequest(
            directory=str(log.directory),
            segments=[
                SealedSegment(
                    segment.base_offset,
                    segment.size_bytes,
                    segment.offset_index.size_bytes,
                    segment.time_index.size_bytes,
                )
                for segment in segments[:count]
            ],
            segments_end=segments[count].base_offset,
            transaction_indexes=[
                segment.base_offset for segment in segments if segment.transaction_index.entry_count
            ],
            first_dirty_offset=first_dirty_offset,
            end_offset=end_offset,
            producers={
                producer_id: LastBatch(
                    producer.batches[-1].last_offset if producer.batches else None, producer.producer_epoch
                )
                for producer_id, producer in log.producers.producers.items()
            },
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=limits.dedupe_buffer_bytes,
            load_factor=limits.load_factor,
            max_bytes_a_second=limits.max_bytes_a_second,
            window_bytes=limits.window_bytes,
            max_decompressed_bytes=limits.max_decompressed_bytes,
        ), log.truncations.begun

    def open_cleaned(self, group: CleanedGroup, now_ms: TimestampMs) -> Segment:
        """Open a `.cleaned` segment; from now on recovery accepts gaps between offsets. Blocks.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = self._log
        with storage_errors(f"open the cleaned segments in {log.directory}"):
            marker = log.directory / OFFSET_GAPS_MARKER
            if not marker.exists():
                marker.touch()
                sync_directory(log.directory)
            file = LogFile.open(offset_file(log.directory, group.base_offset, LOG_SUFFIX + CLEANED_SUFFIX))
            segment = Segment(
                log.directory,
                group.base_offset,
                file,
                file.size_bytes(),
                created_ms=now_ms,
                name_suffix=CLEANED_SUFFIX,
            )
            segment.transaction_index.load()
            if not indexes_are_sound(segment, log.config, thorough=False):
                raise KafkaError(
                    ErrorCode.kafka_storage_error, f"{file.path} has indexes that do not match it"
                )
            segment.reload_max_timestamp()
            segment.first_timestamp()
            segment.synced = True
            segment.close_indexes()
            return segment

    def replace(self, group: CleanedGroup, cleaned: Segment, truncations: int, now_ms: TimestampMs) -> bool:
        """Replace a group's segments by the cleaned one in memory; return whether that was possible.

        For the thread that changes the log; changes no file.
        """
        log = self._log
        if log.is_closed or log.successor is not None or log.loading is not None:
            return False
        if log.truncations.begun != truncations:
            return False
        log.may_have_gaps = True
        return log.segments.replace(group.sources, cleaned, log.config, now_ms)

    def rename_files(self) -> None:
        """Rename the files as `replace` changed the log. Blocks.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors(f"rename the cleaned segments in {self._log.directory}"):
            self._log.segments.rename_files_due()

    def note_cleaned(self, up_to_offset: Offset, truncations: int) -> None:
        """Set the cleaned offset, unless the log was truncated meanwhile."""
        log = self._log
        if log.truncations.begun == truncations:
            log.cleaned_offset = up_to_offset

    def remove_unwanted(self, base_offsets: Sequence[Offset]) -> None:
        """Remove the `.cleaned` files of refused groups. Blocks.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        directory = self._log.directory
        with storage_errors(f"remove unused cleaned segments in {directory}"):
            for base_offset in base_offsets:
                for suffix in SEGMENT_SUFFIXES:
                    path = offset_file(directory, base_offset, suffix + CLEANED_SUFFIX)
                    path.unlink(missing_ok=True)

    def is_gone(self, group: CleanedGroup) -> bool:
        bases = {segment.base_offset for segment in self._log.segments.all}
        return bases.isdisjoint(group.sources)
