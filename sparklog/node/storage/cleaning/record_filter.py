"""Second pass of a cleaning: which records of a window of batches stay, and their bytes.

Rules kept, as in Kafka (Cleaner.cleanInto, MemoryRecords.filterTo):

- A record stays if the map has no later one of its key, or if it lies above the mapped range. A tombstone is
  removed too once its batch's delete horizon has passed; the first cleaning that meets it sets the horizon.
- Offsets, order, timestamps, headers, leader epochs, sequence numbers and codecs stay. A batch keeps its base
  offset and its last offset when records are removed from it.
- The last batch of every producer that the log remembers stays, empty if need be: it has the last sequence
  number. So does the last batch of a round, which marks how far the log was cleaned.
- Batches of which all records stay are copied unchanged and not decompressed for writing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.node.storage.cleaning.batch_windows import Window, records_in_groups
from sparklog.node.storage.cleaning.key_hashes import KeyHashes
from sparklog.node.storage.cleaning.offset_map import OffsetMap
from sparklog.node.storage.cleaning.request import LastBatch
from sparklog.node.storage.file_region import Buffer
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.machine.cleaned_transactions import CleanedTransactions
from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.protocol.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    header_bytes,
    read_header,
)
from sparklog.protocol.records.codecs import Codec, compress
from sparklog.protocol.records.columns import LocatedRecords, binary_column
from sparklog.protocol.records.varint_columns import (
    Bytes,
    Int64s,
    VarintColumn,
    pack_columns,
    read_varint_column,
)
from sparklog.protocol.types import Offset, ProducerId, TimestampMs

_Bools = npt.NDArray[np.bool_]
_KEPT_WHEN_EMPTY: Final = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class Round(NamedTuple):
    known_up_to: Offset
    """Exclusive: the map has the keys from the first dirty offset up to here."""
    end_offset: Offset
    """End of the cleanable part when the cleaning was planned."""
    producers: Mapping[ProducerId, LastBatch]
    now_ms: TimestampMs
    delete_retention_ms: int
    max_decompressed_bytes: int


class Remains(NamedTuple):
    parts: list[Buffer]
    headers: list[BatchHeader]
    size_bytes: int


class _Verdict(NamedTuple):
    """Decision about a batch by its header, before its records are read."""

    records_go: bool
    stays_empty: bool
    begins_horizon: bool
    """The batch is a marker whose transaction has no other batch left."""


class RecordFilter:
    def __init__(
        self,
        offset_map: OffsetMap,
        hashes: KeyHashes,
        transactions: CleanedTransactions,
        index_aborted: Callable[[AbortedTransactionEntry], None],
        of_round: Round,
    ) -> None:
        self._map = offset_map
        self._hashes = hashes
        self._transactions = transactions
        self._index_aborted = index_aborted
        self._round = of_round

    def remains(self, window: Window) -> Remains:
        """Return the rest of the next window.

        Raises:
            CorruptBatchError, KafkaError: a batch is damaged.
        """
        verdicts = [self._judge(window, number) for number in range(len(window.batches))]
        rewritten: dict[int, tuple[bytes, Buffer] | None] = {}
        looked_at: list[int] = []
        for number, (_, header) in enumerate(window.batches):
            if header.base_offset >= self._round.known_up_to:
                # Nothing above is removed, not even aborted records: it may still be truncated.
                break
            if verdicts[number].records_go or not header.record_count:
                rewritten[number] = _emptied(header) if verdicts[number].stays_empty else None
            else:
                looked_at.append(number)
        for members, records in records_in_groups(window, looked_at, self._round.max_decompressed_bytes):
            self._filter(records, members, verdicts, rewritten)
        return _put_together(window, rewritten)

    def _judge(self, window: Window, number: int) -> _Verdict:
        position, header = window.batches[number]
        if header.is_control:
            may_go = self._marker_may_go(header, window.data[position : position + header.size_bytes])
            horizon_ms = header.delete_horizon_ms
            records_go = may_go and horizon_ms is not None and horizon_ms <= self._round.now_ms
            begins_horizon = may_go and horizon_ms is None
        else:
            records_go = self._transactions.is_aborted(header)
            begins_horizon = False
        last = self._round.producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            is_last = False
        elif last.last_offset is None:
            is_last = header.is_control and header.producer_epoch == last.producer_epoch
        else:
            is_last = header.last_offset == last.last_offset
        stays_empty = is_last or header.next_offset == self._round.end_offset
        return _Verdict(records_go, stays_empty, begins_horizon)

    def _marker_may_go(self, header: BatchHeader, batch: memoryview) -> bool:
        if not header.record_count:
            return True
        marker = read_marker(header, batch)
        if marker is None:
            return False
        may_go, entry = self._transactions.end(header, aborted=marker.aborted)
        if entry is not None:
            self._index_aborted(entry)
        return may_go

    def _filter(
        self,
        records: LocatedRecords,
        members: Sequence[int],
        verdicts: Sequence[_Verdict],
        rewritten: dict[int, tuple[bytes, Buffer] | None],
    ) -> None:
        """Note in `rewritten` the batches of a group that change."""
        headers = records.batches
        of_round = self._round
        kept, is_tombstone = self._kept(records)
        batch_of_record = records.batch_of_record
        counts = np.bincount(batch_of_record[kept], minlength=len(headers))
        tombstones = np.bincount(batch_of_record[kept & is_tombstone], minlength=len(headers))
        begins_horizon = np.array(
            [
                header.delete_horizon_ms is None
                and header.last_offset < of_round.known_up_to
                and (tombstones[place] > 0 or verdicts[number].begins_horizon)
                for place, (number, header) in enumerate(zip(members, headers, strict=True))
            ]
        )
        totals = np.array([header.record_count for header in headers])
        for place in np.flatnonzero(counts == 0).tolist():
            stays_empty = verdicts[members[place]].stays_empty
            rewritten[members[place]] = _emptied(headers[place]) if stays_empty else None
        changed = (counts > 0) & ((counts < totals) | begins_horizon)
        by_append_time = np.array([bool(header.timestamp_type) for header in headers])
        horizon_ms = of_round.now_ms + of_round.delete_retention_ms
        for is_retimed in (False, True):
            # Under LogAppendTime a record's own delta has no meaning.
            chosen = changed & ((begins_horizon & ~by_append_time) == is_retimed)
            rows = np.flatnonzero(kept & chosen[batch_of_record])
            if not len(rows):
                continue
            payload, bounds = _retimed(records, rows, horizon_ms) if is_retimed else _verbatim(records, rows)
            last_rows = np.cumsum(counts[chosen])
            latest_ms = _latest(records, rows, last_rows)
            first = 0
            for place, last, max_timestamp_ms in zip(
                np.flatnonzero(chosen).tolist(), last_rows.tolist(), latest_ms.tolist(), strict=True
            ):
                header = headers[place]
                rewritten[members[place]] = _rewritten(
                    header,
                    payload[bounds[first] : bounds[last]],
                    record_count=last - first,
                    max_timestamp_ms=header.max_timestamp if header.timestamp_type else max_timestamp_ms,
                    horizon_ms=horizon_ms if begins_horizon[place] else None,
                )
                first = last

    def _kept(self, records: LocatedRecords) -> tuple[_Bools, _Bools]:
        """Return masks of the records that stay, and of the tombstones."""
        fields, headers = records.fields, records.batches
        now_ms = self._round.now_ms
        is_control = np.array([header.is_control for header in headers])[records.batch_of_record]
        horizon_passed = np.array(
            [
                header.delete_horizon_ms is not None and header.delete_horizon_ms <= now_ms
                for header in headers
            ]
        )[records.batch_of_record]
        is_tombstone = (fields.value_lengths < 0) & ~is_control
        is_known = (records.offsets < self._round.known_up_to) & ~is_control
        kept = ~is_known
        rows = np.flatnonzero(is_known & (fields.key_lengths >= 0))
        keys = self._hashes.of(records.data, fields.key_positions[rows], fields.key_lengths[rows])
        is_last = records.offsets[rows] >= self._map.get(*keys)
        kept[rows] = is_last & ~(is_tombstone & horizon_passed)[rows]
        return kept, is_tombstone


def _verbatim(records: LocatedRecords, rows: Int64s) -> tuple[memoryview, Int64s]:
    """Return the bytes of records, and the bounds of each."""
    starts = records.starts[rows]
    return _bytes_and_bounds(binary_column(records.data, starts, records.fields.ends[rows] - starts))


def _retimed(
    records: LocatedRecords, rows: Int64s, base_timestamp_ms: TimestampMs
) -> tuple[memoryview, Int64s]:
    """Return records with their timestamps relative to another base."""
    data = records.data
    _, after_lengths = read_varint_column(data, records.starts[rows])
    _, after_timestamps = read_varint_column(data, after_lengths + 1)
    rest_lengths = records.fields.ends[rows] - after_timestamps
    deltas = VarintColumn.of(_timestamps(records, rows) - base_timestamp_ms)
    # Between length and timestamp lies an unused byte of attributes.
    lengths = VarintColumn.of(1 + deltas.sizes + rest_lengths)
    heads, head_starts = pack_columns([lengths, 0, deltas])
    head_column = _binary_array(heads, head_starts)
    rest_column = binary_column(data, after_timestamps, rest_lengths)
    return _bytes_and_bounds(pc.binary_join_element_wise(head_column, rest_column, b""))


def _binary_array(data: Bytes, bounds: Int64s) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _bytes_and_bounds(column: pa.Array) -> tuple[memoryview, Int64s]:
    _, bounds, data = column.buffers()
    rows = np.frombuffer(bounds, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data), rows.astype(np.int64)


def _timestamps(records: LocatedRecords, rows: Int64s) -> Int64s:
    bases = np.array([header.base_timestamp for header in records.batches], dtype=np.int64)
    return bases[records.batch_of_record[rows]] + records.fields.timestamp_deltas[rows]


def _latest(records: LocatedRecords, rows: Int64s, last_rows: Int64s) -> Int64s:
    """Return the largest timestamp of each batch; `last_rows` are the ends of their rows."""
    first_rows = np.concatenate((np.zeros(1, dtype=np.int64), last_rows[:-1]))
    return np.maximum.reduceat(_timestamps(records, rows), first_rows)


def _rewritten(
    header: BatchHeader,
    payload: memoryview,
    *,
    record_count: int,
    max_timestamp_ms: TimestampMs,
    horizon_ms: TimestampMs | None,
) -> tuple[bytes, Buffer]:
    changed = header._replace(record_count=record_count, max_timestamp=max_timestamp_ms)
    if horizon_ms is not None:
        changed = changed._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms
        )
    codec = header.codec
    stored: Buffer = payload if codec is Codec.NONE else compress(codec, payload, None)
    return header_bytes(changed, stored), stored


def _emptied(header: BatchHeader) -> tuple[bytes, Buffer]:
    """Return a batch without records that keeps the offsets and producer fields of its header."""
    emptied = header._replace(
        attributes=header.attributes & _KEPT_WHEN_EMPTY, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    return header_bytes(emptied, b""), b""


def _put_together(window: Window, rewritten: Mapping[int, tuple[bytes, Buffer] | None]) -> Remains:
    parts: list[Buffer] = []
    headers: list[BatchHeader] = []
    size_bytes = 0
    untouched_from: int | None = None
    for number, (position, header) in enumerate(window.batches):
        if number not in rewritten:
            untouched_from = position if untouched_from is None else untouched_from
            headers.append(header)
            size_bytes += header.size_bytes
            continue
        if untouched_from is not None:
            parts.append(window.data[untouched_from:position])
            untouched_from = None
        batch = rewritten[number]
        if batch is not None:
            parts += batch
            headers.append(read_header(batch[0]))
            size_bytes += HEADER_BYTES + len(batch[1])
    if untouched_from is not None:
        position, header = window.batches[-1]
        parts.append(window.data[untouched_from : position + header.size_bytes])
    return Remains(parts, headers, size_bytes)
