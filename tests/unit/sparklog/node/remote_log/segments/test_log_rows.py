"""Which records of a log go into a remote segment."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.node.remote_log.segments.log_rows import log_rows
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import TimestampType
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch, make_marker

LARGEST_MS = (2**63 - 1) // 1000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Yield an empty log."""
    opened = Log.open(tmp_path / "flights-3", LogConfig(segment_bytes=4_000), now_ms=START_MS)
    yield opened
    opened.close()


def append(log: Log, *batches: bytes) -> None:
    """Append batches as a follower, which takes them as they are."""
    for batch in batches:
        log.append_as_follower(batch, START_MS)


def offsets_of(log: Log, start: int, end: int) -> list[int]:
    found: list[int] = []
    for rows in log_rows(log, start, end):
        found += rows.column("offset").to_pylist()
    return found


def test_rows_are_the_records_of_the_range_with_all_that_they_have(log: Log) -> None:
    """A batch may reach beyond the range at both ends; codecs and nulls do not matter."""
    records = [
        SimpleRecord(b"k", None, (("h", b"1"), ("n", None)), START_MS),
        SimpleRecord(None, b"v", (), START_MS - 5),
        SimpleRecord(b"", b"", (), None),
    ]
    append(log, build_batch(records, leader_epoch=0, codec=Codec.ZSTD), make_batch(2, base_offset=3))
    [first, second] = [rows.to_pylist() for rows in log_rows(log, 1, 4)]
    assert [(row["offset"], row["key"], row["value"], row["headers"]) for row in first + second] == [
        (1, None, b"v", None),
        (2, b"", b"", None),
        (3, b"key", bytes(20), None),
    ]
    assert {(row["partition"], row["timestampType"]) for row in first + second} == {
        (3, TimestampType.CREATE_TIME)
    }
    [[row]] = [rows.to_pylist() for rows in log_rows(log, 0, 1)]
    assert row["headers"] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert row["timestamp"].timestamp() * 1000 == START_MS


def test_aborted_records_and_markers_are_left_out_across_reads_and_segments(log: Log) -> None:
    """A transaction may begin in one read and end many segments later; its producer's next one is seen."""
    transactional = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    append(log, make_batch(1, base_offset=0, base_sequence=0, value_bytes=1_000, **transactional))
    for offset in range(1, 21):
        append(log, make_batch(1, base_offset=offset, value_bytes=1_000))
    append(
        log,
        make_batch(1, base_offset=21, base_sequence=1, **transactional),
        make_marker(base_offset=22, producer_id=7, producer_epoch=0, commit=False),
        make_batch(1, base_offset=23, base_sequence=2, **transactional),
        make_marker(base_offset=24, producer_id=7, producer_epoch=0, commit=True),
        make_batch(1, base_offset=25),
    )
    assert len(log.segments.all) > 3
    assert offsets_of(log, 0, 26) == [*range(1, 21), 23, 25]
    assert offsets_of(log, 10, 26) == [*range(10, 21), 23, 25]


def test_rows_do_not_keep_the_bytes_of_aborted_batches_in_memory(tmp_path: Path) -> None:
    """A row group's records may lie far apart: each would keep all that was read with it."""
    transactional = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    aborted = make_batch(1, base_offset=0, base_sequence=0, value_bytes=1_000_000, **transactional)
    committed = make_batch(1, base_offset=1, value_bytes=100)
    marker = make_marker(base_offset=2, producer_id=7, producer_epoch=0, commit=False)
    log = Log.open(tmp_path / "t-0", LogConfig(), now_ms=START_MS)
    append(log, aborted, committed, marker)
    tracemalloc.start()
    try:
        (rows,) = log_rows(log, 0, 3)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        log.close()
    assert rows.column("offset").to_pylist() == [1]
    assert kept_bytes < 500_000


def test_transaction_aborted_above_the_range_is_left_out(log: Log) -> None:
    """Below the last stable offset everything is decided, though its marker may be above."""
    append(
        log,
        make_batch(1, base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        make_batch(1, base_offset=1, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True),
        make_marker(base_offset=2, producer_id=7, producer_epoch=0, commit=False),
    )
    assert log.last_stable_offset(3) == 1
    assert offsets_of(log, 0, 1) == []


def test_gaps_of_a_cleaned_log_stay(log: Log) -> None:
    """Offsets are names of records: consumers have committed them."""
    records = [SimpleRecord(b"k", b"v", (), START_MS, offset) for offset in (4, 9, 70)]
    append(log, build_batch(records, base_offset=4, leader_epoch=0), make_batch(1, base_offset=1_000))
    assert offsets_of(log, 0, 1_001) == [4, 9, 70, 1_000]
    assert offsets_of(log, 5, 1_000) == [9, 70]


def test_range_without_records_has_no_rows(log: Log) -> None:
    """A leader that asks once more at the log's end gets nothing, and no error."""
    append(log, make_batch(3))
    assert offsets_of(log, 3, 3) == []


def test_end_that_compaction_has_left_empty_has_no_rows(log: Log) -> None:
    """The log's end is known, though no batch reaches to it."""
    append(log, make_batch(3))
    log.skip_to(9, START_MS)
    assert offsets_of(log, 0, 9) == [0, 1, 2]
    assert offsets_of(log, 3, 9) == []


def test_log_that_ends_before_the_range_is_an_error(log: Log) -> None:
    """It was truncated meanwhile: the rest would count as copied, and be deleted here."""
    append(log, make_batch(3))
    with pytest.raises(KafkaError, match=r"flights-3: the log was truncated .* from 3 on") as refused:
        offsets_of(log, 0, 5)
    assert refused.value.error_code is ErrorCode.kafka_storage_error


def test_timestamp_that_no_column_holds_is_kept_at_the_end_of_the_range(log: Log) -> None:
    """A record with a nonsensical time must not keep its partition from being copied forever."""
    records = [
        SimpleRecord(timestamp_ms=2**62),
        SimpleRecord(timestamp_ms=-(2**62)),
        SimpleRecord(timestamp_ms=5),
    ]
    append(log, build_batch(records[:1]), build_batch(records[1:2], base_offset=1))
    append(log, build_batch(records[2:], base_offset=2))
    [rows] = log_rows(log, 0, 3)
    assert rows.column("timestamp").view(pa.int64()).to_pylist() == [
        LARGEST_MS * 1000,
        -LARGEST_MS * 1000,
        5_000,
    ]


def test_damaged_batch_is_an_error_with_partition_and_offset(log: Log, tmp_path: Path) -> None:
    """What is copied is believed later: damage must not get a good checksum in the object store."""
    append(log, make_batch(2), make_batch(2, base_offset=2))
    [segment] = (tmp_path / "flights-3").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(KafkaError, match=r"flights-3.*offset 2") as refused:
        offsets_of(log, 0, 4)
    assert refused.value.error_code is ErrorCode.corrupt_message
