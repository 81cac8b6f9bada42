"""Keys and values of a batch's records, without the other fields, for logs that need only these.

Works without columns and their libraries. One request often appends many records of one layout whose keys
differ only in their last bytes: such a run is read at once, for a fifth of the cost of single records.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from sparklog.protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatchError
from sparklog.protocol.records.codecs import DEFAULT_DECOMPRESSED_LIMIT_BYTES, Codec, decompress
from sparklog.protocol.records.varints import MalformedRecordsError, read_varint

END_BYTES: Final = 4
"""Number of last bytes in which the keys of a run may differ."""
_MAX_RUN: Final = 256
"""Limit for a run, since its consumer processes it at once."""
_DELTAS: Final = {1: ("B", 0x80, 0), 2: ("H", 0x8080, 0x8000)}
"""Struct format of an offset delta by its length in bytes, and its continuation bits: mask and expected
value."""


class KeyRun(NamedTuple):
    """Consecutive records whose keys have a common prefix."""

    prefix: bytes | None
    """None if the key is null."""
    ends: Sequence[bytes]
    """Rest of each key: `END_BYTES`, or less if the key is shorter."""
    values: Sequence[bytes | None]

    def keys_and_values(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        for end, value in zip(self.ends, self.values, strict=True):
            yield None if self.prefix is None else self.prefix + end, value


def read_key_runs(buffer: bytes | memoryview, header: BatchHeader, position: int = 0) -> Iterator[KeyRun]:
    """Yield the records of the batch at `position` in runs of one or more; the CRC is not checked.

    Raises:
        CorruptBatchError: lengths or counts inside do not add up.
        KafkaError: as `codecs.decompress` raises it.
    """
    data = bytes(memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes])
    if header.codec is not Codec.NONE:
        data = bytes(decompress(header.codec, data, DEFAULT_DECOMPRESSED_LIMIT_BYTES))
    start, size, left = 0, len(data), header.record_count
    try:
        while left > 0:
            length = data[start]
            if length < 0x80:
                length >>= 1
                at = start + 1
            else:
                length, at = read_varint(data, start)
            end = at + length
            at += 1  # attributes
            while data[at] >= 0x80:  # the timestamp's delta
                at += 1
            delta_at = at = at + 1
            while data[at] >= 0x80:  # the offset's
                at += 1
            key_length_at = at + 1
            length, at = read_varint(data, key_length_at)
            key_at = at
            key = None
            if length >= 0:
                at += length
                key = data[key_at:at]
            key_end = at
            length, at = read_varint(data, at)
            value_at = at
            value = None
            if length >= 0:
                at += length
                value = data[value_at:at]
            if not at < end <= size:
                raise CorruptBatchError(f"a record that begins at position {start} leaves its batch")
            left -= 1
            if key is None:
                yield KeyRun(None, (b"",), (value,))
            elif value is None or not left or not data.startswith(data[start:delta_at], end):
                yield KeyRun(key[:-END_BYTES], (key[-END_BYTES:],), (value,))
            else:
                bounds = (start, delta_at, key_length_at, key_end - END_BYTES, key_end, value_at, at, end)
                ends, values = _following(data, bounds, left) if key_end - END_BYTES >= key_at else ([], [])
                left -= len(ends)
                end += len(ends) * (end - start)
                yield KeyRun(key[:-END_BYTES], (key[-END_BYTES:], *ends), (value, *values))
            start = end  # headers are not read
    except IndexError:
        raise CorruptBatchError(f"the records end before {header.record_count} are read") from None
    except MalformedRecordsError as error:
        raise CorruptBatchError(str(error)) from None
    if start != size:
        raise CorruptBatchError(f"{size - start} bytes follow the last record")


_Bounds = tuple[int, int, int, int, int, int, int, int]
"""Positions of a record, its offset delta, its key length, the key's end bytes, the end of the key, its
value, the end of that, and the end of the record."""


def _following(data: bytes, bounds: _Bounds, left: int) -> tuple[list[bytes], list[bytes]]:
    """Return the key ends and values of the following records that differ from one in nothing else."""
    start, delta_at, key_length_at, end_at, key_end, value_at, value_end, end = bounds
    ends: list[bytes] = []
    values: list[bytes] = []
    delta_bytes = key_length_at - delta_at
    if delta_bytes not in _DELTAS:
        return ends, values
    delta_format, mask, marks = _DELTAS[delta_bytes]
    record = _layout(
        delta_at - start,
        delta_format,
        end_at - key_length_at,
        value_at - key_end,
        value_end - value_at,
        end - value_end,
    )
    head, middle = data[start:delta_at], data[key_length_at:end_at]
    value_length, tail = data[key_end:value_at], data[value_end:end]
    count = min(left, (len(data) - end) // record.size, _MAX_RUN - 1)
    for each_head, delta, each_middle, key_end_bytes, each_length, value, each_tail in record.iter_unpack(
        memoryview(data)[end : end + count * record.size]
    ):
        if (
            each_head != head
            or each_middle != middle
            or each_length != value_length
            or delta & mask != marks
            or each_tail != tail
        ):
            break
        ends.append(key_end_bytes)
        values.append(value)
    return ends, values


@lru_cache(maxsize=1024)
def _layout(head: int, delta: str, middle: int, value_length: int, value: int, tail: int) -> Struct:
    return Struct(f">{head}s{delta}{middle}s{END_BYTES}s{value_length}s{value}s{tail}s")
