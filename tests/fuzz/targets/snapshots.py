"""Snapshots of the metadata, and the records in them and in the metadata log.

The first byte: whether the rest are batches (each behind two bytes of length, with its checksum put right),
records to be put between a header and a footer, or one record. What is read is written, and read to the same.
"""

import contextlib
import struct
from collections.abc import Iterator

from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord

from sparklog.node.metadata.framing import MetadataFrameError, decode_record, encode_record
from sparklog.node.metadata_log.machine.control_records import control_record
from sparklog.node.metadata_log.machine.snapshot_batches import (
    DamagedSnapshotError,
    decode_snapshot,
    encode_snapshot,
    read_last_timestamp,
)
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import SnapshotId
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of
from tests.fuzz.targets import Target
from tests.fuzz.targets.batches import repaired
from tests.fuzz.targets.requests import check_written_again

ID = SnapshotId(100, 3)


def target() -> Target:
    return take


def take(data: bytes) -> None:
    kind, rest = kind_of(data, 3)
    if kind == 0:
        _snapshot([repaired(piece) for piece in _by_lengths(rest)])
    elif kind == 1:
        values = list(_by_lengths(rest))
        if values:
            _snapshot(list(_enclosed(values)))
    else:
        try:
            record = decode_record(rest)
        except MetadataFrameError:
            return
        again = encode_record(decode_record(encode_record(record)))
        expect(again == encode_record(record), "it is read to something else")
        check_written_again(record)


def with_lengths(pieces: list[bytes]) -> bytes:
    """Return pieces as an input has them."""
    return b"".join(struct.pack(">H", len(piece)) + piece for piece in pieces)


def _by_lengths(data: bytes) -> Iterator[bytes]:
    position = 0
    while position + 2 <= len(data):
        (size,) = struct.unpack_from(">H", data, position)
        yield data[position + 2 : position + 2 + size]
        position += 2 + size


def _enclosed(values: list[bytes]) -> Iterator[bytes]:
    begin = [control_record(SnapshotHeaderRecord(version=0, last_contained_log_timestamp=5), 5)]
    end = [control_record(SnapshotFooterRecord(version=0), 5)]
    records = [SimpleRecord(value=value, timestamp_ms=5) for value in values]
    yield build_batch(begin, base_offset=0, leader_epoch=3, control=True)
    yield build_batch(records, base_offset=1, leader_epoch=3)
    yield build_batch(end, base_offset=1 + len(records), leader_epoch=3, control=True)


def _snapshot(batches: list[bytes]) -> None:
    if batches:
        with contextlib.suppress(DamagedSnapshotError):
            read_last_timestamp(ID, batches[0])
    try:
        snapshot = decode_snapshot(ID, batches)
    except DamagedSnapshotError:
        return
    written = list(encode_snapshot(snapshot))
    try:
        again = decode_snapshot(ID, written)
    except KafkaError as error:
        expect(False, f"a snapshot that was written is refused: {error}")
    expect(list(encode_snapshot(again)) == written, "a snapshot is read to something else")
