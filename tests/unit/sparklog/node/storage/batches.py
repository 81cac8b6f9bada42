"""Batches for the storage tests."""

from sparklog.node.storage.log.log import Log
from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch

START_MS = 1_700_000_000_000


def make_batch(
    count: int = 1,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    value_bytes: int = 20,
    timestamp_ms: int = START_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """Return a batch of `count` records, a millisecond apart."""
    records = [
        SimpleRecord(b"key", bytes([i % 256]) * value_bytes, (), timestamp_ms + i) for i in range(count)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def make_marker(
    *, base_offset: int, producer_id: int, producer_epoch: int, commit: bool, leader_epoch: int = 0
) -> bytes:
    """Return a transaction's end marker."""
    key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
    return build_batch(
        [SimpleRecord(key, b"\x00\x00\x00\x00\x00\x07", (), START_MS)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def headers_of(batches: bytes) -> list[BatchHeader]:
    """Return the headers of whole batches."""
    return [header for _, header in iterate_headers(batches)]


def load_producers_again(log: Log) -> None:
    """Do what a truncation asks for, as somebody beside the loop would."""
    if log.loading is not None:
        log.take_producers(log.loading, log.loading.run(START_MS))


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """Return everything from `offset` to the log's end, read by read."""
    position = log.log_start_offset if offset is None else offset
    parts = []
    while (result := log.read(position, max_bytes=max_bytes, up_to_offset=log.log_end_offset)).region:
        parts.append(result.region.read())
        assert result.next_offset > position
        position = result.next_offset
    return b"".join(parts)
