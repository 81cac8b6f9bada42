"""Batches to Arrow columns."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    CorruptBatchError,
    header_bytes,
    read_header,
    stamp_with_append_time,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.columns import COLUMN_TYPES
from sparklog.protocol.records.decode import decode_batches
from tests.examples import examples
from tests.unit.sparklog.protocol.records.samples import JAVA_BATCHES, JAVA_RECORDS, as_rows, record_lists

ALL_COLUMNS = tuple(COLUMN_TYPES)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(
    buffer: bytes, columns: Sequence[str] = ALL_COLUMNS, **settings: object
) -> list[dict[str, object]]:
    """Return the rows that `decode_batches` gives, having let Arrow check every array."""
    rows: list[dict[str, object]] = []
    for table in decode_batches(buffer, columns=columns, topic="t", partition=2, **settings):  # type: ignore[arg-type]
        table.validate(full=True)
        assert table.schema == pa.schema([(name, COLUMN_TYPES[name]) for name in columns])
        rows += table.to_pylist()
    return rows


def offsets(buffer: bytes, **settings: object) -> list[object]:
    return [row["offset"] for row in decoded(buffer, ["offset"], **settings)]


def numbered(base_offset: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch of `count` records that say their offset."""
    return build_batch(
        [SimpleRecord(b"%d" % (base_offset + row), None, (), 1000 + row) for row in range(count)],
        base_offset=base_offset,
        codec=codec,
    )


@pytest.mark.parametrize("codec", Codec)
def test_java_batch_becomes_rows(codec: Codec) -> None:
    """All columns, as Spark's Kafka source gives them."""
    assert decoded(JAVA_BATCHES[codec]) == [
        row
        | {
            "topic": "t",
            "partition": 2,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms or 0),
            "timestampType": 0,
        }
        for row, record in zip(as_rows(JAVA_RECORDS), JAVA_RECORDS, strict=True)
    ]


@given(
    st.lists(st.tuples(record_lists, st.sampled_from(Codec)), min_size=1, max_size=6),
    st.integers(1, 70),
    st.booleans(),
)
@examples(40)
def test_decoding_round_trip_keeps_the_records(
    batches: list[tuple[list[SimpleRecord], Codec]], max_rows: int, as_view: bool
) -> None:
    """Whatever batches lie side by side, and wherever the output is cut."""
    buffer = b""
    expected: list[SimpleRecord] = []
    for records, codec in batches:
        buffer += build_batch(records, base_offset=len(expected), codec=codec)
        expected += records
    source = memoryview(b"?" + buffer)[1:] if as_view else buffer
    columns = ["key", "value", "headers"]
    tables = list(
        decode_batches(source, columns=columns, topic="t", partition=0, max_rows=max_rows, max_bytes=2000)
    )
    assert all(table.num_rows <= max_rows for table in tables)
    assert [row for table in tables for row in table.to_pylist()] == as_rows(expected)
    assert [row["timestamp"] for row in decoded(buffer, ["timestamp"])] == [
        EPOCH + timedelta(milliseconds=record.timestamp_ms or 0) for record in expected
    ]
    assert offsets(buffer) == list(range(len(expected)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("columns", [["offset"], ["partition"], []])
def test_reading_between_offsets_is_exact_inside_batches(codec: Codec, columns: list[str]) -> None:
    """A task reads exactly its range, however the producer cut its batches."""
    buffer = numbered(10, 4, codec) + numbered(14, 1, codec) + numbered(15, 5, codec)
    for start in range(8, 22):
        for end in range(start, 22):
            expected = [offset for offset in range(10, 20) if start <= offset < end]
            tables = list(
                decode_batches(
                    buffer, columns=columns, topic="t", partition=0, start_offset=start, end_offset=end
                )
            )
            assert sum(table.num_rows for table in tables) == len(expected)
            if columns == ["offset"]:
                assert [row["offset"] for table in tables for row in table.to_pylist()] == expected


def test_compacted_batch_keeps_its_gaps() -> None:
    """After compaction offsets are no longer base + row."""
    records = [SimpleRecord(b"k", b"v", offset=offset) for offset in (3, 4, 9)]
    buffer = build_batch(records, base_offset=2) + numbered(20, 2)
    assert offsets(buffer) == [3, 4, 9, 20, 21]
    assert offsets(buffer, start_offset=4, end_offset=10) == [4, 9]
    assert offsets(buffer, start_offset=5, end_offset=9) == []
    assert len(decoded(buffer, ["partition"], start_offset=4)) == 4


def test_control_batch_is_skipped() -> None:
    """Transaction markers are no data."""
    control = build_batch([SimpleRecord(b"\0\0\0\0", b"x")], base_offset=2, control=True, transactional=True)
    assert offsets(numbered(0, 2) + control + numbered(3, 2)) == [0, 1, 3, 4]


def test_empty_batch_of_a_compacted_log_is_skipped() -> None:
    """Compaction may leave a header without records, for the producer's sequence."""
    header = read_header(numbered(2, 3))._replace(record_count=0)
    assert offsets(numbered(0, 2) + header_bytes(header, b"") + numbered(5, 1)) == [0, 1, 5]


def test_append_time_is_every_records_timestamp() -> None:
    """Under LogAppendTime the deltas mean nothing."""
    batch = numbered(0, 3)
    stamped = stamp_with_append_time(0, 0, read_header(batch), batch, 5000) + batch[HEADER_BYTES:]
    rows = decoded(stamped + numbered(3, 2), ["timestamp", "timestampType"])
    assert [row["timestampType"] for row in rows] == [1, 1, 1, 0, 0]
    assert [(row["timestamp"] - EPOCH) / timedelta(milliseconds=1) for row in rows] == [  # type: ignore[operator]
        5000,
        5000,
        5000,
        1000,
        1001,
    ]


def test_views_of_long_values_lie_in_the_bytes_of_their_batches() -> None:
    """A copy of each value would cost as much as all else that decoding does."""
    records = [SimpleRecord(None, b"%d" % row * 100, (), 1_000) for row in range(10)]
    buffer = build_batch(records)
    (rows,) = decode_batches(buffer, columns=["value"], topic="t", partition=2, view_values=True)
    assert rows.column("value").to_pylist() == [record.value for record in records]
    begins = pa.py_buffer(buffer).address
    assert begins <= rows.column("value").buffers()[2].address < begins + len(buffer)


@pytest.mark.parametrize("codec", Codec)
def test_values_are_the_same_as_views(codec: Codec) -> None:
    """Short, empty and null ones are not beside long ones in the batches' bytes."""
    (rows,) = decode_batches(JAVA_BATCHES[codec], columns=["value"], topic="t", partition=2, view_values=True)
    rows.validate(full=True)
    assert rows.column("value").type == pa.binary_view()
    assert rows.column("value").to_pylist() == [record.value for record in JAVA_RECORDS]


def test_partial_last_batch_is_ignored() -> None:
    """Fetch responses end anywhere."""
    first, second = numbered(0, 2), numbered(2, 2)
    for cut in range(1, len(second) + 1):
        assert offsets((first + second)[:-cut]) == [0, 1]
    assert offsets(b"") == []


def test_more_headers_than_records_are_read() -> None:
    """Deep and shallow header lists take different ways through the reader."""
    records = [
        SimpleRecord(None, b"v", tuple((f"h{level}", b"%d" % row) for level in range(row % 7)))
        for row in range(60)
    ]
    records.append(SimpleRecord(None, b"v", tuple((f"h{level}", None) for level in range(500))))
    assert decoded(build_batch(records), ["key", "value", "headers"]) == as_rows(records)


def test_header_key_that_is_no_text_is_replaced() -> None:
    """Java reads it so too; a query must not fail on it."""
    batch = build_batch([SimpleRecord(None, None, (("kk", b"v"),))])
    payload = batch[HEADER_BYTES:].replace(b"kk", b"\xff\xfe")
    rows = decoded(header_bytes(read_header(batch), payload) + payload, ["headers"])
    assert rows == [{"headers": [{"key": "��", "value": b"v"}]}]


@pytest.mark.parametrize("codec", Codec)
def test_damage_at_any_byte_is_noticed(codec: Codec) -> None:
    """Base offset and leader epoch are outside the CRC; everything else must raise and say where."""
    good = JAVA_BATCHES[codec]
    for position in range(len(good)):
        if position in range(8) or position in range(12, 16):
            continue
        broken = bytearray(good)
        broken[position] ^= 0x11
        try:
            rows = decoded(bytes(broken))
        except KafkaError as error:
            assert str(error).startswith(error.error_code.name.upper() + ": t-2")
        else:
            assert position in range(8, 12)  # a longer length makes it a partial batch
            assert rows == []


@given(st.data(), st.sampled_from([Codec.NONE, Codec.SNAPPY]))
@examples(80)
def test_wrong_records_under_a_good_crc_raise_only_named_errors(data: st.DataObject, codec: Codec) -> None:
    """A CRC only says that the bytes are the producer's; its lengths and counts may still be nonsense."""
    batch = JAVA_BATCHES[codec]
    payload = bytearray(batch[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    count = data.draw(st.sampled_from([4, 3, 5, -1, 2**31 - 1]))
    last_delta = data.draw(st.sampled_from([3, 2, 9, 2**31 - 1, -5]))
    base_offset = data.draw(st.sampled_from([0, 7, 2**63 - 5, -3]))
    header = read_header(batch)._replace(
        record_count=count, last_offset_delta=last_delta, base_offset=base_offset
    )
    buffer = header_bytes(header, bytes(payload)) + payload
    try:
        decoded(bytes(buffer))
    except KafkaError as error:
        assert "t-2" in error.message


def test_damaged_batch_after_good_ones_gives_the_good_ones_first() -> None:
    """What was read before the damage is not lost with it, and the error names the batch."""
    bad = bytearray(numbered(4, 2))
    bad[-1] ^= 1
    seen: list[int] = []
    with pytest.raises(CorruptBatchError, match=r"t-0, batch at offset 4: .* has CRC"):
        for table in decode_batches(
            numbered(0, 4) + bytes(bad) + numbered(6, 2), columns=["offset"], topic="t", partition=0
        ):
            seen += table.column("offset").to_pylist()
    assert seen == [0, 1, 2, 3]


def test_batches_that_go_back_raise() -> None:
    """Offsets that repeat would count records twice."""
    with pytest.raises(CorruptBatchError, match="goes back"):
        offsets(numbered(0, 4) + numbered(3, 4))


def test_timestamp_beyond_microseconds_raises() -> None:
    """It cannot be shown, and must not come out as another time."""
    with pytest.raises(KafkaError) as raised:
        decoded(build_batch([SimpleRecord(None, b"v", (), 2**62)]), ["timestamp"])
    assert raised.value.error_code is ErrorCode.invalid_timestamp
    assert len(decoded(build_batch([SimpleRecord(None, b"v", (), 2**62)]), ["value"])) == 1


def test_missing_timestamp_is_a_millisecond_before_1970() -> None:
    """Spark's connector shows -1 so."""
    rows = decoded(build_batch([SimpleRecord(None, b"v")]), ["timestamp"])
    assert rows == [{"timestamp": EPOCH - timedelta(milliseconds=1)}]


def test_batch_beyond_the_decompression_limit_raises() -> None:
    """A task's memory is bounded whatever a producer sent."""
    bomb = build_batch([SimpleRecord(None, bytes(1 << 20))], codec=Codec.ZSTD)
    with pytest.raises(KafkaError, match=r"batch at offset 0: .* more than 1000000 bytes"):
        decoded(bomb, ["value"], decompressed_limit_bytes=1_000_000)


def test_unknown_column_is_named() -> None:
    """A typing mistake in a schema shows what there is."""
    with pytest.raises(ValueError, match="'vale' is not a column of records; the columns are key, value"):
        decoded(b"", ["vale"])
