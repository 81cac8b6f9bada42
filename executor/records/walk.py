"""The walk over the records of a batch, since its header alone cannot be trusted.

A header says how many records there are and what the latest timestamp is. Readers go by the records: a length
that lies, a header without a key, bytes behind the last record stop each of them at that batch for ever. So a
leader walks over all of it before it appends, and finds the latest timestamp on the way. The rules are those
of Kafka's DefaultRecord and LogValidator, and stricter where Kafka takes what its own readers, or others,
cannot read: fields must fill their record also in a compressed batch, lengths are not below -1, and offset
deltas are 0, 1, 2, ...

Machines write records of one size. A run of these is looked at by columns, cut out of the batch by C: the
bytes of all lengths must be those of the first record, the offset deltas are known, and timestamps are
compared in their encoded form. Records of different sizes are read by numpy: the usual ones by comparing
their first bytes as a whole (`walk_usual`), others a field at a time (`walk_columns`); a few by a loop
(`walk_few`), and those that surprise it by `read_record`.

Order for the caller: `take` with the records' bytes, as they come; then `finish`.
"""

from typing import Final, NamedTuple

from sparklog.executor.records.refusal import MOST_RECORD_ERRORS, RecordError, RecordsRefusedError
from sparklog.executor.records.run_timestamps import extremes_of_run
from sparklog.executor.records.walk_few import StretchOfRecords, read_few
from sparklog.protocol.errors import TIMESTAMPS_ARE_BOUNDED, ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    NO_TIMESTAMP,
    SMALLEST_RECORD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from sparklog.protocol.records.varints import LONGEST_INT_BYTES, MalformedRecordsError, read_varint
from sparklog.protocol.types import TimestampMs

_SHORTEST_RUN: Final = 8
"""Fewer records of one size are not worth the columns."""
_FEWEST_AS_A_WHOLE: Final = 32
"""Fewer records of different sizes are read sooner by a loop than by comparing their first bytes,"""
_FEWEST_BY_COLUMNS: Final = 128
"""and fewer than that sooner than a field at a time."""
_MOST_HEADERS_IN_A_RUN: Final = 16
"""Each of them is two columns and more."""
_FEW_TO_LOOK_CLOSER: Final = 100
_FEW_HEADERS: Final = 1_000
"""The limits of a hasty walk."""
_NO_BOUND: Final = 2**31
_STRETCH: Final = 1_024
"""After so many records of different sizes it is looked again whether a run begins."""
_SHORT_DELTAS: Final = 64
"""Offset deltas below have one byte,"""
_LONG_DELTAS: Final = 8_192
"""and below this two."""
_FIRST_BYTES: Final = bytes((raw & 0x7F) | 0x80 for raw in range(0, 2 * _LONG_DELTAS, 2))
_SECOND_BYTES: Final = bytes(raw >> 7 for raw in range(0, 2 * _LONG_DELTAS, 2))
_ONLY_BYTES: Final = bytes(range(0, 2 * _SHORT_DELTAS, 2))


class CostlyWalkError(Exception):
    """The records take longer to check than a hasty walk may."""


class RecordLimits(NamedTuple):
    require_keys: bool = False
    earliest_ms: TimestampMs | None = None
    """The first timestamp that is allowed, and the last one; None where those of producers do not count
    (LogAppendTime)."""
    latest_ms: TimestampMs | None = None


class WalkedRecord(NamedTuple):
    """A complete and valid record."""

    end: int
    timestamp_position: int
    timestamp_delta: int
    offset_position: int
    offset_delta: int
    key_position: int
    """Where the key's length stands, and what follows the offset delta."""
    key_length: int
    lengths: list[tuple[int, int]]
    """Where lengths and counts stand that are behind the offset delta: from, to."""


def read_record(data: bytes, position: int, most_headers: int = _NO_BOUND) -> WalkedRecord:
    """Return the record at `position`.

    Raises:
        CostlyWalkError: it has more than `most_headers`.
        MalformedRecordsError: its lengths do not add up.
        IndexError: it goes on after the end of `data`.
    """
    length, at = read_varint(data, position, LONGEST_INT_BYTES)
    end = at + length
    if length < SMALLEST_RECORD_BYTES - 1 or end > len(data):
        raise MalformedRecordsError(f"is {length} bytes long, which cannot be")
    timestamp_position = at + 1
    timestamp_delta, offset_position = read_varint(data, timestamp_position)
    offset_delta, key_position = read_varint(data, offset_position, LONGEST_INT_BYTES)
    key_length, at = read_varint(data, key_position, LONGEST_INT_BYTES)
    lengths = [(key_position, at)]
    if key_length > 0:
        at += key_length
    value_position = at
    value_length, at = read_varint(data, at, LONGEST_INT_BYTES)
    lengths.append((value_position, at))
    if value_length > 0:
        at += value_length
    count_position = at
    header_count, at = read_varint(data, at, LONGEST_INT_BYTES)
    lengths.append((count_position, at))
    if key_length < -1 or value_length < -1 or not 0 <= 2 * header_count <= end - at:
        raise MalformedRecordsError(
            f"contains a key of {key_length}, a value of {value_length} bytes and {header_count} headers"
        )
    if header_count > most_headers:
        raise CostlyWalkError
    for _ in range(header_count):
        header_position = at
        length, at = read_varint(data, at, LONGEST_INT_BYTES)
        if length < 0:
            raise MalformedRecordsError("contains a header without a key")
        lengths.append((header_position, at))
        at += length
        header_position = at
        length, at = read_varint(data, at, LONGEST_INT_BYTES)
        if length < -1:
            raise MalformedRecordsError(f"contains a header whose value has {length} bytes")
        lengths.append((header_position, at))
        if length > 0:
            at += length
        if at > end:
            break
    if at != end:
        raise MalformedRecordsError(
            f"contains fields of {at - position} bytes, its length says {end - position}"
        )
    return WalkedRecord(
        end,
        timestamp_position,
        timestamp_delta,
        offset_position,
        offset_delta,
        key_position,
        key_length,
        lengths,
    )


class RecordWalk:
    __slots__ = (
        "_base_timestamp",
        "_count",
        "_errors",
        "_has_append_time",
        "_has_time_error",
        "_headers_left",
        "_highest",
        "_index",
        "_is_usual",
        "_limits",
        "_looks_left",
    )

    def __init__(self, header: BatchHeader, limits: RecordLimits, *, is_hasty: bool = False) -> None:
        """Begin; a hasty walk gives up (CostlyWalkError) at many headers or refused records."""
        self._headers_left = _FEW_HEADERS if is_hasty else _NO_BOUND
        self._looks_left = _FEW_TO_LOOK_CLOSER if is_hasty else _NO_BOUND
        self._base_timestamp = header.base_timestamp
        self._has_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
        self._count = header.record_count
        self._limits = limits
        self._index = 0
        """How many records were seen."""
        self._highest: int | None = None
        """The largest timestamp delta of these."""
        self._errors: list[RecordError] = []
        self._has_time_error = False
        self._is_usual = True
        """Whether `walk_usual` has read all that was asked of it; a few records before a piece ends do not
        count."""

    @property
    def max_timestamp(self) -> TimestampMs:
        """The latest timestamp, -1 without any."""
        assert self._highest is not None, "a walk that is finished saw a record"
        return max(NO_TIMESTAMP, self._base_timestamp + self._highest)

    def take(self, data: bytes, position: int = 0) -> int:
        """Walk over the whole records in data[position:]; return where a partial last one begins.

        Raises:
            CostlyWalkError: the walk is hasty.
            KafkaError: INVALID_RECORD, a record is malformed, or there are more than the header says.
        """
        size = len(data)
        try:
            while position < size:
                left = self._count - self._index
                if left == 0:
                    raise self._malformed("there are bytes behind the last record")
                after = self._take_run(data, position, left) if left >= _SHORTEST_RUN else position
                if after == position:
                    after = self._take_stretch(data, position, min(left, _STRETCH))
                    if after == position:
                        return position
                position = after
        except MalformedRecordsError as error:
            raise self._malformed(f"record {self._index} {error}") from error
        except IndexError:
            raise self._malformed(f"record {self._index} has a field that leaves it") from None
        return position

    def take_one(self, timestamp_delta: int, offset_delta: int, *, has_key: bool) -> None:
        """Add a record that was read elsewhere.

        Raises:
            KafkaError: INVALID_RECORD, as `take` says.
        """
        if self._index == self._count:
            raise self._malformed("there are bytes behind the last record")
        if offset_delta != self._index:
            raise self._malformed(f"record {self._index} has offset delta {offset_delta}")
        if not has_key or not self._allows(timestamp_delta, timestamp_delta):
            self._look_closer(self._index, timestamp_delta, has_key=has_key)
        self._advance(1, timestamp_delta)

    def finish(self) -> None:
        """Check that all records were seen, and that each may be here.

        Raises:
            KafkaError: INVALID_RECORD.
            RecordsRefusedError: INVALID_RECORD or INVALID_TIMESTAMP, with the records that are to blame.
        """
        if self._index != self._count:
            raise self._malformed(f"there are {self._index} whole records")
        if self._errors:
            raise RecordsRefusedError(self._errors, self._count)

    def _malformed(self, what: str) -> KafkaError:
        return KafkaError(
            ErrorCode.invalid_record,
            f"the batch of {self._count} records is malformed, and no consumer could read it: {what}",
        )

    def _advance(self, count: int, highest: int) -> None:
        self._index += count
        if self._highest is None or highest > self._highest:
            self._highest = highest

    def _allows(self, lowest: int, highest: int) -> bool:
        """Whether timestamps from one delta to another are within the limits."""
        if self._has_append_time:
            return False
        _, earliest_ms, latest_ms = self._limits
        if earliest_ms is None or latest_ms is None:
            return True
        base = self._base_timestamp
        return earliest_ms <= base + lowest and base + highest <= latest_ms

    def _look_closer(self, index: int, timestamp_delta: int, *, has_key: bool) -> None:
        error = self._error_of(index, timestamp_delta, has_key=has_key)
        if error is None:
            return
        if error.error_code is ErrorCode.invalid_timestamp and not self._has_time_error:
            self._has_time_error = True  # the batch's error code is that of time, however late it is found
        elif len(self._errors) >= MOST_RECORD_ERRORS:
            return
        self._errors.append(error)

    def _error_of(self, index: int, timestamp_delta: int, *, has_key: bool) -> RecordError | None:
        limits = self._limits
        if limits.require_keys and not has_key:
            message = "a record without a key, which a compacted topic needs"
            return RecordError(index, ErrorCode.invalid_record, message)
        if self._has_append_time:
            message = "the timestamp type LogAppendTime, which is for brokers"
            return RecordError(index, ErrorCode.invalid_timestamp, message)
        timestamp = self._base_timestamp + timestamp_delta
        earliest_ms, latest_ms = limits.earliest_ms, limits.latest_ms
        if (
            earliest_ms is None
            or latest_ms is None
            or timestamp == NO_TIMESTAMP
            or earliest_ms <= timestamp <= latest_ms
        ):
            return None
        message = (
            f"timestamp {timestamp} is not within [{earliest_ms}, {latest_ms}], {TIMESTAMPS_ARE_BOUNDED}"
        )
        return RecordError(index, ErrorCode.invalid_timestamp, message)

    def _look_closer_at(self, data: bytes, position: int, count: int) -> None:
        """Note the errors of `count` valid records from `position` on."""
        self._looks_left -= count
        if self._looks_left < 0:
            raise CostlyWalkError
        for index in range(self._index, self._index + count):
            record = read_record(data, position)
            self._look_closer(index, record.timestamp_delta, has_key=record.key_length >= 0)
            position = record.end

    def _take_run(self, data: bytes, position: int, left: int) -> int:
        """Take the run of records whose lengths are all those of the record at `position`; return its end.

        The end is `position` if the run is too short.
        """
        head = data[position]
        length_bytes = 1 if head < 0x80 else 2
        if length_bytes == 1:
            stride = 1 + (head >> 1)
        else:
            if position + 1 >= len(data) or (second := data[position + 1]) > 0x7F:
                return position
            stride = 2 + ((head & 0x7F) >> 1) + (second << 6)
        index = self._index
        count = min(left, (len(data) - position) // stride)
        if index < _SHORT_DELTAS:
            count = min(count, _SHORT_DELTAS - index)
        else:
            count = min(count, _LONG_DELTAS - index)
        if count < _SHORTEST_RUN or data[position + (_SHORTEST_RUN - 1) * stride] != head:
            return position
        first = read_record(data, position, self._headers_left)
        if len(first.lengths) > 3 + 2 * _MOST_HEADERS_IN_A_RUN:
            return position
        columns = [(position, position + length_bytes), *first.lengths]
        for start, stop in columns:
            for at in range(start, stop):
                column = data[at : at + count * stride : stride]
                if column != column[:1] * count:  # one memcmp; lstrip looks byte by byte
                    count -= len(column.lstrip(column[:1]))
                    if count < _SHORTEST_RUN:
                        return position
        if not self._are_next(data, first, stride, count):
            return position
        deltas = extremes_of_run(
            data, first.timestamp_position, first.offset_position - first.timestamp_position, stride, count
        )
        if deltas is None:
            return position
        lowest, highest = deltas
        if (first.key_length < 0 and self._limits.require_keys) or not self._allows(lowest, highest):
            self._look_closer_at(data, position, count)
        self._advance(count, highest)
        return position + count * stride

    def _are_next(self, data: bytes, first: WalkedRecord, stride: int, count: int) -> bool:
        """Whether the offset deltas of `count` records follow on."""
        start, index = first.offset_position, self._index
        size_bytes = first.key_position - start
        column = data[start : start + count * stride : stride]
        if index < _SHORT_DELTAS:
            return size_bytes == 1 and column == _ONLY_BYTES[index : index + count]
        return (
            size_bytes == 2
            and column == _FIRST_BYTES[index : index + count]
            and data[start + 1 : start + 1 + count * stride : stride] == _SECOND_BYTES[index : index + count]
        )

    def _take_stretch(self, data: bytes, position: int, most: int) -> int:
        """Walk over at most `most` whole records of any sizes; return their end."""
        if self._is_usual and most >= _FEWEST_AS_A_WHOLE:
            end = self._take_usual(data, position, most)
            if end > position:
                return end
        starts: list[int] = []
        size, at = len(data), position
        try:
            for _ in range(most):
                if at >= size:
                    break
                starts.append(at)
                head = data[at]
                # A length below 0 leads astray here, and is found when its record is read.
                if head < 0x80:
                    at += 1 + (head >> 1)
                elif (second := data[at + 1]) < 0x80:
                    at += 2 + ((head & 0x7F) >> 1) + (second << 6)
                else:
                    length, at = read_varint(data, at, LONGEST_INT_BYTES)
                    at += max(length, 0)
        except IndexError:
            at = size + 1
        if at > size:
            at = starts.pop()
        if len(starts) >= _FEWEST_AS_A_WHOLE:
            self._is_usual = False
        few = None
        if 0 < len(starts) < _FEWEST_BY_COLUMNS:
            few = read_few(data, starts, at, self._index)
        if few is not None:
            self._add_stretch(data, starts, few)
        elif len(starts) < _FEWEST_AS_A_WHOLE:
            for start in starts:
                record = read_record(data, start, self._headers_left)
                self._headers_left -= (len(record.lengths) - 3) // 2
                self.take_one(record.timestamp_delta, record.offset_delta, has_key=record.key_length >= 0)
        else:
            self._take_columns(data, starts)
        return at

    def _take_usual(self, data: bytes, position: int, most: int) -> int:
        # Imported with the first batch that needs it: it brings numpy into the broker.
        from sparklog.executor.records.walk_usual import read_usual

        found = read_usual(data, position, most, self._index, require_keys=self._limits.require_keys)
        if found is None:
            return position
        if found.has_null_key or not self._allows(found.lowest_delta, found.highest_delta):
            self._look_closer_at(data, position, found.record_count)
        self._advance(found.record_count, found.highest_delta)
        return found.end

    def _take_columns(self, data: bytes, starts: list[int]) -> None:
        from sparklog.executor.records.walk_columns import read_columns

        try:
            found = read_columns(data, starts, self._index, self._headers_left)
        except MalformedRecordsError as error:
            raise MalformedRecordsError(f"or one of the next {len(starts) - 1}: {error}") from error
        self._add_stretch(data, starts, found)

    def _add_stretch(self, data: bytes, starts: list[int], found: StretchOfRecords) -> None:
        if found.header_count > self._headers_left:
            raise CostlyWalkError
        self._headers_left -= found.header_count
        if (found.has_null_key and self._limits.require_keys) or not self._allows(
            found.lowest_delta, found.highest_delta
        ):
            self._look_closer_at(data, starts[0], len(starts))
        self._advance(len(starts), found.highest_delta)
