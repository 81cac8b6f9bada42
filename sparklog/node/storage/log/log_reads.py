"""Queries of a log: reading by offset, looking up by time.

`read`, `offset_for_timestamp`, `producers_at` and `aborted_transactions` are safe in any thread, beside
changes of the log in another: their answer was true at some moment between call and return. With
`cached_only` (for the thread that changes the log: the event loop) they wait for no disk.
"""

from collections.abc import Callable
from typing import TypeVar

from sparklog.node.storage.files import storage_error, storage_errors
from sparklog.node.storage.index.index_file import SegmentReleasedError
from sparklog.node.storage.log.log_state import LogState
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.producers.producer_replay import producers_at
from sparklog.node.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    OffsetMovedToTierError,
    ReadResult,
)
from sparklog.node.storage.segments import time_lookup
from sparklog.node.storage.segments.segment_list import number_of
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.types import AbortedTransaction, LeaderEpoch, Offset, TimestampMs

T = TypeVar("T")


class LogReads(LogState):
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

    def _look_up(self, look: Callable[[LogState], T]) -> T:
        """Return the result of `look`, repeated until no truncation or released segment interfered.

        If another log replaced a closed one, the successor is queried.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: the log was closed.
        """
        state: LogState | None = self
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
                if state.truncations.begun == before:
                    raise
            else:
                if state.truncations.begun == before:
                    return found
        raise KafkaError(ErrorCode.not_leader_or_follower, f"{self.topic_partition}: the log is closed")

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

        def look(state: LogState) -> ProducerStates:
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

        def look(state: LogState) -> list[AbortedTransaction]:
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
