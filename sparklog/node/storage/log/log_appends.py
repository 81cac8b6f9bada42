"""Appends to a log: of clients' batches on a leader, which assigns offsets, and of fetched batches.

Rule kept: an append is in the log whole or not at all. For the thread that changes the log.
"""

from collections.abc import Sequence

from sparklog.node.storage.file_region import Buffer
from sparklog.node.storage.files import OFFSET_GAPS_MARKER, storage_error, storage_errors
from sparklog.node.storage.log.log_state import LogState
from sparklog.node.storage.machine.producer_states import Duplicate
from sparklog.node.storage.machine.verification import Verification
from sparklog.node.storage.producers.producer_replay import apply_batch
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.node.storage.results import AppendInfo
from sparklog.node.storage.segments.segment import MAX_RELATIVE_OFFSET
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    STAMP,
    STAMP_BYTES,
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
    stamp_with_append_time,
)
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs


class LogAppends(LogState):
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

    def append_as_follower(self, records: bytes | memoryview, now_ms: TimestampMs) -> AppendInfo | None:
        """Append a leader's batches with their offsets and epochs; a partial last batch is left out.

        `now_ms` is the wall clock's, by which producers expire. Offsets may have gaps (compaction). The first
        batch of an empty log may begin below its end: the leader's log may start within a batch
        (DeleteRecords). Returns None if there is no whole batch.

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
            self._append_over_rolls(view, headers, now_ms)
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
        latest = self.epochs.latest
        for header in headers:
            leader_epoch = header.partition_leader_epoch
            if leader_epoch != latest and leader_epoch >= 0 and (latest is None or leader_epoch > latest):
                changed |= self.epochs.assign(leader_epoch, header.base_offset)
                latest = leader_epoch
        if changed:
            self.write_epochs()
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
                    with self.all_or_torn(f"append to {active.transaction_index.path}"):
                        batch = view[position : position + header.size_bytes]
                        apply_batch(self.producers, header, batch, active, now_ms)
                else:
                    self.producers.update(header, now_ms)
            position += header.batch_length + LENGTH_OVERHEAD
        last = headers[-1]
        self.log_end_offset = last.base_offset + last.last_offset_delta + 1
