"""Arrow columns to batches."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.walk import RecordLimits
from sparklog.protocol.records.batch import STAMP, check_crc, read_header, validate_produced
from sparklog.protocol.records.builder import SimpleRecord, read_records
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.encode import EncodedBatch, encode_batches
from sparklog.protocol.types import or_minus_one
from tests.examples import examples
from tests.unit.sparklog.protocol.records.samples import (
    HEADERS_TYPE,
    JAVA_BATCHES,
    JAVA_RECORDS,
    record_lists,
)

NOW_MS = 1_700_000_000_000


def columns_of(records: list[SimpleRecord] | tuple[SimpleRecord, ...]) -> dict[str, pa.Array]:
    return {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] or None for record in records],
            HEADERS_TYPE,
        ),
        "timestamp": pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", "UTC")),
    }


def encoded(batch_size_bytes: int = 1 << 20, **arguments: object) -> list[EncodedBatch]:
    """Return the batches, each checked as a broker would."""
    batches = list(
        encode_batches(batch_size_bytes=batch_size_bytes, default_timestamp_ms=NOW_MS, **arguments)  # type: ignore[arg-type]
    )
    for batch in batches:
        assert len(batch.data) == batch.size_bytes
        header = validate_produced(batch.data, max_message_bytes=1 << 30)
        taken = examine(batch.data, header, Demands(1 << 30, 1 << 30, RecordLimits(False, -(2**60), 2**60)))
        assert taken[:2] == (batch.data, header), "the leader has nothing to put right"
        said = (batch.record_count, or_minus_one(batch.base_sequence))
        assert (header.record_count, header.base_sequence) == said
    return batches


def records_of(batches: list[EncodedBatch]) -> list[SimpleRecord]:
    """Return the records, without offsets."""
    return [
        record._replace(offset=None)
        for batch in batches
        for record in read_records(batch.data, read_header(batch.data))
    ]


def test_encoded_batch_is_byte_for_byte_javas() -> None:
    """The columnar way and Java's give the same bytes."""
    (batch,) = encoded(**columns_of(JAVA_RECORDS))
    header = read_header(batch.data)
    stamped = STAMP.pack(7, header.batch_length, 3) + batch.data[16:]
    check_crc(stamped, 0, header)
    assert stamped == JAVA_BATCHES[Codec.NONE]


@given(record_lists, st.sampled_from(Codec), st.integers(62, 3000), st.booleans())
@examples(40)
def test_encoding_round_trip_keeps_the_records(
    records: list[SimpleRecord], codec: Codec, batch_size_bytes: int, sliced: bool
) -> None:
    """Every column, in order, over all batch boundaries, within the size asked for."""
    columns = columns_of([*records[:1], *records] if sliced else records)
    if sliced:
        columns = {name: column.slice(1) for name, column in columns.items()}
    batches = encoded(batch_size_bytes, codec=codec, **columns)
    assert records_of(batches) == records
    for batch in batches:
        header = read_header(batch.data)
        written = list(read_records(batch.data, header))
        assert [record.offset for record in written] == list(range(header.record_count))
        assert header.base_timestamp == written[0].timestamp_ms
        assert header.max_timestamp == max(record.timestamp_ms or 0 for record in written)
        if codec is Codec.NONE:
            assert batch.size_bytes <= batch_size_bytes or batch.record_count == 1


@given(record_lists, st.sampled_from([Codec.NONE, Codec.GZIP]))
@examples(20)
def test_encoded_batches_are_read_by_kafka_python(records: list[SimpleRecord], codec: Codec) -> None:
    """An independent parser must see the same records."""
    theirs = [
        record
        for batch in encoded(2000, codec=codec, **columns_of(records))
        for record in DefaultRecordBatch(batch.data)
    ]
    assert [(record.key, record.value, record.timestamp) for record in theirs] == [
        (record.key, record.value, record.timestamp_ms) for record in records
    ]
    assert [[(key, value) for key, value in record.headers] for record in theirs] == [
        list(record.headers) for record in records
    ]


def test_batches_are_filled_up_to_their_size() -> None:
    """Batches much smaller than batch.size would cost throughput."""
    value = pa.array([b"x" * 100] * 5000)
    sizes = [batch.size_bytes for batch in encoded(16384, value=value)]
    assert all(16384 * 0.97 < size <= 16384 for size in sizes[:-1])


def test_record_larger_than_the_batch_size_gets_a_batch_of_its_own() -> None:
    """As with Kafka's batch.size; whether it is too large is the broker's to say."""
    value = pa.array([b"a", b"b" * 5000, b"c", b"d"])
    assert [batch.record_count for batch in encoded(1000, value=value)] == [1, 1, 2]


def test_sequences_continue_over_batches_and_wrap() -> None:
    """The broker refuses a gap; after 2^31 - 1 comes 0."""
    batches = encoded(
        200, value=pa.array([b"x" * 40] * 7), producer_id=3, producer_epoch=1, base_sequence=2**31 - 3
    )
    expected = 2**31 - 3
    for batch in batches:
        header = read_header(batch.data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, expected)
        expected = (expected + batch.record_count) % 2**31
    assert len(batches) > 3
    assert expected == 4


def test_sequences_continue_over_pieces_of_large_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are encoded in groups, which must not show."""
    monkeypatch.setattr("sparklog.protocol.records.encode._GROUP_BYTES", 300)
    batches = encoded(
        200,
        value=pa.array([b"%040d" % row for row in range(50)]),
        producer_id=3,
        producer_epoch=0,
        base_sequence=0,
    )
    firsts = [batch.base_sequence for batch in batches]
    assert firsts == [sum(batch.record_count for batch in batches[:row]) for row in range(len(batches))]
    assert [record.value for record in records_of(batches)] == [b"%040d" % row for row in range(50)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_every_binary_type_is_taken(kind: pa.DataType, chunked: bool) -> None:
    """Spark and pandas give one or another."""
    values = ["one", None, "", "a longer value of more than twelve bytes", "Grüße"]
    column = pa.array(values, kind)
    if chunked:
        column = pa.chunked_array([column.slice(0, 2), column.slice(2, 0), column.slice(2)])
    records = records_of(encoded(value=column, key=column))
    expected = [None if value is None else value.encode() for value in values]
    assert [record.value for record in records] == expected
    assert [record.key for record in records] == expected


def test_fixed_size_binary_is_taken() -> None:
    """UUIDs and hashes come so."""
    column = pa.array([b"0123", None, b"4567"], pa.binary(4))
    assert [record.value for record in records_of(encoded(value=column))] == [b"0123", None, b"4567"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, None, 7]), [5, NOW_MS, 7]),
        (pa.array([5, 6, 7], pa.int32()), [5, 6, 7]),
        (pa.array([5_999, None, 7_000], pa.timestamp("us")), [5, NOW_MS, 7]),
        (pa.array([1, 2, 3], pa.timestamp("s", "America/New_York")), [1000, 2000, 3000]),
        (pa.nulls(3), [NOW_MS] * 3),
        (None, [NOW_MS] * 3),
    ],
)
def test_timestamps_of_every_type_become_milliseconds(column: pa.Array, expected: list[int]) -> None:
    """Null means the time of writing, as in every producer."""
    records = records_of(encoded(value=pa.array([b"a", b"b", b"c"]), timestamp=column))
    assert [record.timestamp_ms for record in records] == expected


def test_timestamps_of_python_datetimes_are_utc() -> None:
    """A DataFrame's timestamps are instants."""
    column = pa.array([datetime(2013, 1, 1, 5, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    (record,) = records_of(encoded(value=pa.array([b"x"]), timestamp=column))
    assert record.timestamp_ms == 1_357_016_400_000


def test_all_null_and_missing_columns_are_null() -> None:
    """Tombstones without keys, and values alone."""
    assert records_of(encoded(value=pa.nulls(2), key=None)) == [SimpleRecord(timestamp_ms=NOW_MS)] * 2
    assert records_of(encoded(value=None, key=pa.array([b"k"]))) == [SimpleRecord(b"k", timestamp_ms=NOW_MS)]


def test_no_rows_give_no_batches() -> None:
    """An empty batch is none a broker takes."""
    assert encoded(value=pa.array([], pa.binary())) == []
    assert encoded(value=pa.chunked_array([], pa.binary())) == []


def test_headers_of_sliced_and_null_lists_are_right() -> None:
    """Lists carry offsets of their own, which slices do not move."""
    headers = pa.array(
        [[("gone", b"1")], None, [], [("a", None), ("b", b"2")], None, [("c", b"")]],
        pa.large_list(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ).slice(1)
    records = records_of(encoded(value=pa.array([b"v"] * 5), headers=headers))
    assert [record.headers for record in records] == [
        (),
        (),
        (("a", None), ("b", b"2")),
        (),
        (("c", b""),),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": None}, "no column"),
        ({"value": pa.array([b"a"]), "key": pa.array([b"a", b"b"])}, "differ in length"),
        ({"value": pa.array([1])}, "value is int64"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array(["x"])}, "timestamp is string"),
        ({"value": pa.array([b"a"]), "headers": pa.array(["x"])}, "headers are string"),
        ({"value": pa.array([b"a"]), "headers": pa.array([[(None, b"x")]], HEADERS_TYPE)}, "no key"),
        ({"value": pa.array([b"a"]), "headers": pa.array([[None]], HEADERS_TYPE)}, "no key"),
    ],
)
def test_wrong_columns_are_named(arguments: dict[str, object], message: str) -> None:
    """The message reaches the user of a DataFrame."""
    with pytest.raises(ValueError, match=message):
        encoded(**arguments)
