"""One round of cleaning: from a log's sealed segments to `.cleaned` segments beside them.

Two passes (Kafka's Cleaner): one over the records since the last round, which fills the map with the last
offset of every key; one over the log from its start, which copies the records that stay. The log's own files
are not changed: a failure, a full disk included, costs only the attempt. Runs in a separate process.

Rule kept: all segments named in the outcome are fsynced when it returns.

First pass of a cleaning: the last offset of every key in the part that was written since the last round.

Windows come in order, beginning with the first that reaches above `first_dirty_offset`. Rule kept: the map
has all keys of a batch or none, since its tombstones expire together; only a batch too large for the map is
split.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from sparklog.node.storage.cleaning.batch_windows import Window, records_in_groups, windows
from sparklog.node.storage.cleaning.key_hashes import KeyHashes
from sparklog.node.storage.cleaning.offset_map import OffsetMap
from sparklog.node.storage.cleaning.record_filter import RecordFilter, Round
from sparklog.node.storage.cleaning.request import CleanedGroup, CleaningOutcome, CleaningRequest
from sparklog.node.storage.file_region import LogFile
from sparklog.node.storage.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file,
    sync_directory,
)
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.index.transaction_index import TransactionIndex
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.cleaned_transactions import CleanedTransactions
from sparklog.node.storage.machine.segment_groups import SealedSegment, group_segments
from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.types import Offset


class KeyMapping:
    def __init__(
        self,
        offset_map: OffsetMap,
        hashes: KeyHashes,
        aborted: Iterable[AbortedTransactionEntry],
        first_dirty_offset: Offset,
        end_offset: Offset,
        max_decompressed_bytes: int,
    ) -> None:
        """`aborted` are the transactions whose markers lie at `first_dirty_offset` or above."""
        self._map = offset_map
        self._hashes = hashes
        self._transactions = CleanedTransactions(aborted)
        self._first = first_dirty_offset
        self._end = end_offset
        self._max_decompressed_bytes = max_decompressed_bytes

    def take(self, window: Window) -> Offset | None:
        """Put a window's keys into the map; return the first offset that did not fit.

        Raises:
            CorruptBatchError, KafkaError: a batch is damaged.
        """
        first, end, transactions = self._first, self._end, self._transactions
        wanted: list[int] = []
        for number, (position, header) in enumerate(window.batches):
            if header.last_offset < first or header.base_offset >= end or not header.record_count:
                continue
            if header.is_control:
                marker = read_marker(header, window.data[position : position + header.size_bytes])
                if marker is not None:
                    transactions.end(header, aborted=marker.aborted)
            elif not transactions.is_aborted(header):
                wanted.append(number)
        for _, records in records_in_groups(window, wanted, self._max_decompressed_bytes):
            fields = records.fields
            rows = np.flatnonzero(
                (fields.key_lengths >= 0) & (records.offsets >= first) & (records.offsets < end)
            )
            keys = self._hashes.of(records.data, fields.key_positions[rows], fields.key_lengths[rows])
            taken = self._map.put(*keys, records.offsets[rows])
            if taken < len(rows):
                row = rows[taken]
                base_offset = records.batches[records.batch_of_record[row]].base_offset
                return base_offset if base_offset > first else int(records.offsets[row])
        return None


class Throttle:
    """Limit on a cleaning's bytes a second (log.cleaner.io.max.bytes.per.second)."""

    def __init__(self, max_bytes_a_second: float | None) -> None:
        self._max_bytes_a_second = max_bytes_a_second
        self._free_at_s = 0.0
        """Time at which the bytes taken so far are paid for."""

    def take(self, size_bytes: int) -> None:
        """Wait until all bytes taken before are paid for, then take more."""
        if self._max_bytes_a_second is None:
            return
        now_s = monotonic()
        if self._free_at_s > now_s:
            sleep(self._free_at_s - now_s)
            now_s = self._free_at_s
        self._free_at_s = now_s + size_bytes / self._max_bytes_a_second


def clean(request: CleaningRequest) -> CleaningOutcome:
    """Clean a log as far as the map's size permits.

    Raises:
        OSError, KafkaError: it failed; the `.cleaned` files are removed if the disk permits.
    """
    return _Cleaning(request).run()


class _Cleaning:
    def __init__(self, request: CleaningRequest) -> None:
        self._request = request
        self._directory = Path(request.directory)
        self._throttle = Throttle(request.max_bytes_a_second)
        self._hashes = KeyHashes()
        self._bytes_read = self._bytes_written = 0

    def run(self) -> CleaningOutcome:
        request = self._request
        offset_map, known_up_to = self._map_keys()
        segments = [segment for segment in request.segments if segment.base_offset < known_up_to]
        of_round = Round(
            known_up_to,
            request.end_offset,
            request.producers,
            request.now_ms,
            request.delete_retention_ms,
            request.max_decompressed_bytes,
        )
        groups: list[CleanedGroup] = []
        transactions = CleanedTransactions(self._aborted_from(0))
        end_offset = request.segments_end
        if len(segments) < len(request.segments):
            end_offset = request.segments[len(segments)].base_offset
        try:
            for group in group_segments(
                segments,
                end_offset,
                segment_bytes=request.segment_bytes,
                segment_index_bytes=request.segment_index_bytes,
            ):
                groups.append(
                    CleanedGroup(
                        base_offset=group[0].base_offset, sources=[segment.base_offset for segment in group]
                    )
                )
                self._clean_group(group, offset_map, transactions, of_round)
            sync_directory(self._directory)
        except BaseException:
            for cleaned in groups:
                with suppress(OSError):
                    remove_cleaned(self._directory, cleaned.base_offset)
            raise
        return CleaningOutcome(
            cleaned_up_to=known_up_to,
            groups=groups,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            keys=offset_map.count,
        )

    def _map_keys(self) -> tuple[OffsetMap, Offset]:
        """Return the map of the dirty part's keys, and the offset up to which it is complete."""
        request = self._request
        first, end = request.first_dirty_offset, request.end_offset
        offset_map = OffsetMap(request.dedupe_buffer_bytes, request.load_factor, max(end - first, 1))
        mapping = KeyMapping(
            offset_map,
            self._hashes,
            self._aborted_from(first),
            first,
            end,
            request.max_decompressed_bytes,
        )
        bases = [segment.base_offset for segment in request.segments]
        for segment, segment_end in zip(request.segments, [*bases[1:], end], strict=True):
            if segment_end > first:
                for window in self._windows(segment):
                    full_at = mapping.take(window)
                    if full_at is not None:
                        return offset_map, full_at
        return offset_map, end

    def _clean_group(
        self,
        group: Sequence[SealedSegment],
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        of_round: Round,
    ) -> None:
        request = self._request
        entries = sum(segment.offset_index_bytes + segment.time_index_bytes for segment in group) // 8
        config = LogConfig(
            segment_index_bytes=max(request.segment_index_bytes, 12 * (entries + 2)),
            index_interval_bytes=request.index_interval_bytes,
        )
        target = Segment.create(
            self._directory, group[0].base_offset, config, now_ms=request.now_ms, name_suffix=CLEANED_SUFFIX
        )
        record_filter = RecordFilter(
            offset_map, self._hashes, transactions, target.transaction_index.append, of_round
        )
        changed_ns = 0
        for segment in group:
            changed_ns = self._path(segment).stat().st_mtime_ns
            for window in self._windows(segment):
                remains = record_filter.remains(window)
                if remains.headers:
                    self._throttle.take(remains.size_bytes)
                    target.append(remains.parts, remains.size_bytes, remains.headers, config)
                    self._bytes_written += remains.size_bytes
        target.seal()
        # Records without a timestamp count as old as their file.
        os.utime(target.file.fileno(), ns=(changed_ns, changed_ns))
        target.flush(sealed=True)
        target.release()

    def _aborted_from(self, offset: Offset) -> list[AbortedTransactionEntry]:
        found: list[AbortedTransactionEntry] = []
        for base_offset in self._request.transaction_indexes:
            index = TransactionIndex(self._directory, base_offset, TRANSACTION_INDEX_SUFFIX)
            index.load()
            if index.entry_count:
                found += index.overlapping(offset, 2**63 - 1)[0]
            index.release()
        return found

    def _windows(self, segment: SealedSegment) -> Iterator[Window]:
        file = LogFile.open(self._path(segment))
        return windows(file, 0, segment.size_bytes, self._request.window_bytes, self._read)

    def _path(self, segment: SealedSegment) -> Path:
        return offset_file(self._directory, segment.base_offset, LOG_SUFFIX)

    def _read(self, size_bytes: int) -> None:
        self._throttle.take(size_bytes)
        self._bytes_read += size_bytes


def remove_cleaned(directory: Path, base_offset: Offset) -> None:
    """Remove the files of a `.cleaned` segment.

    Raises:
        OSError: one cannot be removed.
    """
    for path in directory.glob(f"{base_offset:020d}.*{CLEANED_SUFFIX}"):
        path.unlink(missing_ok=True)
