"""Record batches, of all codecs and message formats: what a leader looks at, what readers make of them.

The first byte: whether lengths and checksums are put right (else hardly an input gets past them), whether the
records are compressed here, by the codec of the attributes, and what the topic demands. Readers of different
kinds must find the same keys and values, and a leader must not take what they can't read where it looked.
"""

import struct
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from sparklog.executor.partitions.settings import LATEST_READABLE_MS
from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.walk import RecordLimits
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    batch_at,
    check_crc,
    iterate_headers,
    next_fetch_offset,
    validate_produced,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec, compress, decompress, decompressed_pieces
from sparklog.protocol.records.decode import decode_batches
from tests.fuzz.finding import expect
from tests.fuzz.targets import Target
from tests.key_values import read_keys_and_values

REPAIR, COMPRESS, KEYS, RECOMPRESS = 0x01, 0x02, 0x04, 0x08
LIMIT_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000
_COLUMNS = ("key", "value", "offset", "timestamp", "headers")


def target() -> Target:
    return take


def take(data: bytes) -> None:
    if not data:
        return
    mode, records = data[0], data[1:]
    if mode & REPAIR:
        records = repaired(records, compresses=bool(mode & COMPRESS))
    _walk(records)
    try:
        header = validate_produced(records, max_message_bytes=LIMIT_BYTES)
        demands = Demands(
            LIMIT_BYTES,
            LIMIT_BYTES,
            RecordLimits(bool(mode & KEYS), -LATEST_READABLE_MS, NOW_MS),
            codec=Codec((mode >> 4) % 5) if mode & RECOMPRESS else None,
        )
        stored, stored_header, _ = examine(records, header, demands)
    except KafkaError:
        pass
    else:
        check_crc(stored, 0, stored_header)
        expect(len(stored) == stored_header.size_bytes, "what is stored has another length than it says")
        found = _found(stored, stored_header)
        expect(found is not None, "a leader has taken what readers refuse")
        assert found is not None
        expect(_columns(stored) is not None, "a leader has taken what DataFrames refuse")
        times = [-1 if each.timestamp_ms is None else each.timestamp_ms for each in found]
        expect(stored_header.max_timestamp == max(-1, *times), "the latest timestamp is another one")
        keys = [each.key for each in found]
        expect(None not in keys or not mode & KEYS, "a record without a key is in a compacted topic")
    _read(records)


def repaired(records: bytes, *, compresses: bool = False) -> bytes:
    """Return one batch with the length and checksum of what it is."""
    if len(records) < HEADER_BYTES:
        return records
    head, payload = records[:HEADER_BYTES], records[HEADER_BYTES:]
    codec = head[22] & 0x07
    if compresses and codec < len(Codec):
        payload = compress(Codec(codec), payload)
    tail = head[21:] + payload
    middle = head[12:17]
    return head[:8] + struct.pack(">i", len(tail) + 9) + middle + struct.pack(">I", crc32c(tail)) + tail


def _walk(records: bytes) -> None:
    try:
        batches = list(iterate_headers(records))
        after = next_fetch_offset(records, 0)
        expect(all(header.next_offset <= after for _, header in batches), "a fetch goes back")
    except KafkaError:
        pass


def _read(records: bytes) -> None:
    """Read the first batch in every way there is."""
    try:
        header = batch_at(records)
        if header is None:
            return
        records = records[: header.size_bytes]
        check_crc(records, 0, header)
        payload, codec = memoryview(records)[HEADER_BYTES:], header.codec
    except KafkaError:
        return
    whole = _or_none(lambda: bytes(decompress(codec, payload, LIMIT_BYTES)))
    pieces = _or_none(lambda: b"".join(decompressed_pieces(codec, payload, LIMIT_BYTES)))
    expect(whole == pieces, "in pieces it is decompressed to something else")
    if whole is not None:
        _found(records, header)


def _or_none(read: Callable[[], bytes]) -> bytes | None:
    try:
        return read()
    except KafkaError:
        return None


def _found(records: bytes | memoryview, header: BatchHeader) -> list[SimpleRecord] | None:
    """Return the records that all readers find; None if they refuse them."""
    try:
        simple: list[SimpleRecord] | None = list(read_records(records, header))
    except KafkaError:
        simple = None
    try:
        pairs: list[Any] | None = list(read_keys_and_values(records, header))
    except KafkaError:
        pairs = None
    columns = _columns(records)
    if simple is None:
        return None
    expect(pairs is not None, "only who wants keys and values alone refuses them")
    expect(pairs == [(each.key, each.value) for each in simple], "keys and values are others")
    if columns is not None and not header.is_control and header.record_count:
        expect(columns == [(each.key, each.value, each.offset) for each in simple], "the columns are others")
    if columns is not None and simple:
        again = build_batch(simple, base_offset=header.base_offset)
        written = batch_at(again)
        assert written is not None
        expect(
            [each[:3] for each in read_records(again, written)] == [each[:3] for each in simple],
            "written again it has other records",
        )
    return simple if columns is not None else None


def _columns(records: bytes | memoryview) -> list[Any] | None:
    rows: list[Any] = []
    try:
        for batch in decode_batches(
            bytes(records),
            columns=_COLUMNS,
            topic="t",
            partition=0,
            decompressed_limit_bytes=LIMIT_BYTES,
        ):
            batch.validate(full=True)
            names = ("key", "value", "offset")
            rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    except KafkaError:
        return None
    return rows
