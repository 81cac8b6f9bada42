"""The walk over the records of a batch, in each of its ways, beside a reader of one record at a time."""

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.records import walk_columns
from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.refusal import RecordsRefusedError
from sparklog.executor.records.streamed import LARGEST_HELD_BYTES, walk_pieces
from sparklog.executor.records.walk import RecordLimits, RecordWalk
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_crc,
    header_bytes,
    read_header,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec, compress
from sparklog.protocol.records.varints import append_varint
from tests.examples import examples
from tests.unit.sparklog.protocol.records.samples import JAVA_BATCHES

NOW_MS: Final = 1_700_000_000_000
LIMITS: Final = RecordLimits(False, -(2**53), 2**53)
DEMANDS: Final = Demands(1 << 24, 1 << 24, LIMITS)


def batch_of(payload: bytes, count: int, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """Return a batch with these bytes for records, under a header that speaks of `count` of them."""
    header = read_header(build_batch([SimpleRecord(timestamp_ms=NOW_MS)]))._replace(
        attributes=codec, record_count=count, last_offset_delta=count - 1, **fields
    )
    payload = compress(codec, payload)
    return header_bytes(header, payload) + payload


def examined(batch: bytes, demands: Demands = DEMANDS) -> tuple[bytes, BatchHeader]:
    stored, header, _ = examine(batch, read_header(batch), demands)
    return bytes(stored), header


def refusal_of(batch: bytes, demands: Demands = DEMANDS) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        examined(batch, demands)
    return raised.value


def record(
    offset_delta: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: tuple[tuple[bytes | None, bytes | None], ...] = (),
    header_count: int | None = None,
    longer: int = 0,
    behind: bytes = b"",
) -> bytes:
    body = bytearray(1)

    def append_bytes(data: bytes | None) -> None:
        append_varint(body, -1 if data is None else len(data))
        body.extend(data or b"")

    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    append_bytes(key)
    append_bytes(value)
    append_varint(body, len(headers) if header_count is None else header_count)
    for name, content in headers:
        append_bytes(name)
        append_bytes(content)
    body += behind
    found = bytearray()
    append_varint(found, len(body) + longer)
    return bytes(found + body)


sizes = st.one_of(st.integers(0, 200), st.sampled_from([50, 51, 58, 8_186, 20_000]))
headers = st.lists(
    st.tuples(st.sampled_from(["a", "trace"]), st.sampled_from([b"", b"xy", None])), max_size=2
)


@st.composite
def some_records(draw: Any) -> list[SimpleRecord]:
    """Draw records in runs that are alike, and some that are not."""
    records: list[SimpleRecord] = []
    time = NOW_MS
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from([None, b"", b"key", b"k" * 70]))
        with_headers = tuple(draw(headers))
        step = draw(st.sampled_from([0, 0, 1, 40, -3, 100_000]))
        run_sizes = draw(st.lists(sizes, min_size=1, max_size=3))
        for index in range(draw(st.integers(1, 90))):
            time += step
            size = run_sizes[index % len(run_sizes)]
            value = None if size == 58 else bytes(size)
            records.append(SimpleRecord(key, value, with_headers, time))
    return records


@given(some_records(), st.sampled_from([1, 5, 300, 4_000, 1 << 30]))
@examples(30)
def test_records_of_any_kind_are_walked_over_however_the_pieces_part(
    records: list[SimpleRecord], piece_bytes: int
) -> None:
    """Runs, columns and the plain loop find the same, and see each byte that is too many or missing."""
    batch = build_batch(records)
    header, payload = read_header(batch), batch[HEADER_BYTES:]
    if len(payload) // piece_bytes > 3_000:
        piece_bytes = 4_000
    pieces = (payload[at : at + piece_bytes] for at in range(0, len(payload), piece_bytes))
    walk = RecordWalk(header, LIMITS)
    walk_pieces(walk, pieces)
    walk.finish()
    assert walk.max_timestamp == max(each.timestamp_ms or 0 for each in records) == header.max_timestamp
    assert examined(batch) == (batch, header)
    count = len(records)
    for payload_, count_ in (
        (payload, count + 1),
        (payload[:-1], count),
        (payload + b"\0", count),
        *[(payload, count - 1)] * (count > 1),
    ):
        assert refusal_of(batch_of(payload_, count_)).error_code is ErrorCode.invalid_record


@given(some_records(), st.randoms(use_true_random=False))
@examples(60)
def test_walk_takes_nothing_that_a_plain_reader_refuses(
    records: list[SimpleRecord], chance: random.Random
) -> None:
    """Bytes changed at random: what is taken reads as offsets 0, 1, 2, ... up to the latest timestamp."""
    batch = build_batch(records)
    payload = bytearray(batch[HEADER_BYTES:])
    for _ in range(chance.choice([1, 1, 3])):
        payload[chance.choice([chance.randrange(len(payload)), chance.randrange(min(40, len(payload)))])] = (
            chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        )
    changed = batch_of(bytes(payload), len(records))
    try:
        stored, header = examined(changed)
    except KafkaError as error:
        assert error.error_code in (ErrorCode.invalid_record, ErrorCode.invalid_timestamp)
        return
    check_crc(stored, 0, header)
    found = list(read_records(stored, header))
    assert [each.offset for each in found] == list(range(len(records)))
    times = [-1 if each.timestamp_ms is None else each.timestamp_ms for each in found]
    assert header.max_timestamp == max(-1, *times)


POISON: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 1),
    "a zero": (b"\0", 1),
    "zeros": (bytes(1_000), 100),
    "a header without a key": (record(headers=((None, b"v"),)), 1),
    "fewer headers than bytes": (record(headers=((b"h", b"v"),), header_count=0), 1),
    "more headers than bytes": (record(header_count=5), 1),
    "a number of headers below 0": (record(header_count=-1), 1),
    "a header whose value is shorter than none": (record(header_count=1, behind=b"\x02h\x03"), 1),
    "a value that leaves its record": (record()[:-3] + b"\x7e" + record()[-2:], 1),
    "a key shorter than none": (b"\x0e\0\0\0\x03\x02v\0", 1),
    "a record longer than its fields": (record(behind=b"\0"), 1),
    "a record shorter than its fields": (record(longer=-1) + record(1), 2),
    "a record that ends behind the batch": (record(longer=5), 1),
    "bytes behind the records": (record() + bytes(12), 1),
    "two records counted as one": (record() + record(1), 1),
    "one record counted as two": (record(value=b"x" * 60), 2),
    "offsets that begin at 1": (record(1), 1),
    "an offset that is there twice": (record(0) + record(0), 2),
    "a gap between offsets": (record(0) + record(2), 2),
    "a length of six bytes": (b"\x90\x80\x80\x80\x80\0" + record()[1:], 1),
    "a key length of six bytes": (b"\x18\0\0\0\x82\x80\x80\x80\x80\0k\x02v\0", 1),
    "a timestamp of eleven bytes": (b"\x24\0" + b"\x80" * 10 + b"\0\0\x02k\x02v\0", 1),
    "a length below 0": (b"\x01" + bytes(20), 1),
}


@pytest.mark.parametrize("what", POISON)
def test_malformed_records_are_refused_alone_and_in_a_crowd(what: str) -> None:
    """Each of these would stop every reader of its partition for ever."""
    payload, count = POISON[what]
    batches = [batch_of(payload, count, codec) for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4)]
    if count == 1 and "offset" not in what and payload:
        for crowd in ([100] * 50, list(range(50))):  # a run, and records of many sizes
            before = b"".join(record(index, value=bytes(size)) for index, size in enumerate(crowd))
            moved = payload.replace(record()[:4], record()[:2] + bytes([2 * len(crowd)]) + record()[3:4])
            batches.append(batch_of(before + moved, len(crowd) + 1))
    for batch in batches:
        assert refusal_of(batch).error_code is ErrorCode.invalid_record


def test_fault_in_the_midst_of_records_of_one_size_is_found() -> None:
    """They are compared by columns of bytes: each byte of a length has its column."""
    good = [record(index, headers=((b"h", b"vv"),), value=b"x" * 100) for index in range(60)]
    examined(batch_of(b"".join(good), 60))
    size = len(good[0])
    structural = [0, 1, 4, 5, 7, 8, size - 6, size - 5, size - 3]
    for position in structural:
        changed = bytearray(b"".join(good))
        changed[30 * size + position] ^= 0x02
        assert refusal_of(batch_of(bytes(changed), 60)).error_code is ErrorCode.invalid_record, position


@pytest.mark.parametrize("codec", Codec)
def test_latest_timestamp_is_that_of_the_records_whatever_the_header_says(codec: Codec) -> None:
    """Some clients leave it out in every batch; look-ups by time go by it."""
    deltas = [0, 7, 3, -2]
    payload = b"".join(record(index, timestamp_delta=delta) for index, delta in enumerate(deltas))
    for said in (-1, NOW_MS - 5_000, NOW_MS + 10_000_000, 2**63 - 1, NOW_MS + 7):
        sent = batch_of(payload, 4, codec, max_timestamp=said)
        stored, header = examined(sent)
        check_crc(stored, 0, header)
        assert header == read_header(stored)
        assert header.max_timestamp == NOW_MS + 7
        assert stored[HEADER_BYTES:] == sent[HEADER_BYTES:]
    demands = DEMANDS._replace(limits=RecordLimits())
    sent = batch_of(payload, 4, codec, max_timestamp=-1)
    assert examined(sent, demands)[0] == sent, "under LogAppendTime producers' timestamps do not count"


def test_timestamp_type_of_brokers_is_refused_without_advice_about_the_topics_bounds() -> None:
    """Other bounds would not help: the producer's library is wrong."""
    header = read_header(build_batch([SimpleRecord(timestamp_ms=NOW_MS)]))
    by_type = refusal_of(header_bytes(header._replace(attributes=TIMESTAMP_TYPE_BIT), record(0)) + record(0))
    by_time = refusal_of(batch_of(record(0, timestamp_delta=1 << 55), 1, max_timestamp=-1))
    assert by_type.error_code is by_time.error_code is ErrorCode.invalid_timestamp
    assert ("LogAppendTime" in by_type.message, "after.max.ms" in by_type.message) == (True, False)
    assert "after.max.ms" in by_time.message


def errors_of(batch: bytes, limits: RecordLimits) -> tuple[ErrorCode, list[int]]:
    error = refusal_of(batch, DEMANDS._replace(limits=limits))
    assert isinstance(error, RecordsRefusedError)
    assert f"record {error.record_errors[0].batch_index}" in error.message or len(error.record_errors) > 1
    return error.error_code, [each.batch_index for each in error.record_errors]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 4, 50])
def test_records_that_may_not_be_in_the_topic_are_told_one_by_one(codec: Codec, count: int) -> None:
    """A producer sends the others again (KIP-467)."""
    records = [SimpleRecord(b"k", b"v" * 9, (), NOW_MS) for _ in range(count)]
    bad = sorted({0, count // 2, count - 1})

    def changed(**fields: Any) -> bytes:
        given = [each._replace(**fields) if index in bad else each for index, each in enumerate(records)]
        return build_batch(given, codec=codec)

    keys, times = RecordLimits(True, 0, 2**53), RecordLimits(False, NOW_MS - 10, NOW_MS + 10)
    assert errors_of(changed(key=None), keys) == (ErrorCode.invalid_record, bad)
    assert errors_of(changed(timestamp_ms=NOW_MS - 11), times) == (ErrorCode.invalid_timestamp, bad)
    assert errors_of(changed(timestamp_ms=NOW_MS + 11), times) == (ErrorCode.invalid_timestamp, bad)
    examined(changed(timestamp_ms=NOW_MS + 10), DEMANDS._replace(limits=times))
    examined(changed(timestamp_ms=None), DEMANDS._replace(limits=times))
    examined(changed(key=b""), DEMANDS._replace(limits=keys))
    both = RecordLimits(True, NOW_MS - 10, NOW_MS + 10)
    mixed = [each._replace(key=None) if index == 0 else each for index, each in enumerate(records)]
    mixed[-1] = mixed[-1]._replace(timestamp_ms=5)
    assert errors_of(build_batch(mixed, codec=codec), both)[0] is (
        ErrorCode.invalid_timestamp if count > 1 else ErrorCode.invalid_record
    )


def test_timestamp_type_that_is_for_brokers_is_told_of_each_record() -> None:
    """With it the records' own timestamps would not be those that were looked at."""
    for limits in (LIMITS, RecordLimits()):
        sent = batch_of(record() + record(1), 2)
        header = read_header(sent)._replace(attributes=0x08)
        changed = header_bytes(header, sent[HEADER_BYTES:]) + sent[HEADER_BYTES:]
        assert errors_of(changed, limits) == (ErrorCode.invalid_timestamp, [0, 1])


def test_number_of_records_that_are_told_is_bounded() -> None:
    """An answer must not be many times as large as the request."""
    batch = build_batch([SimpleRecord()] * 10_000)
    assert errors_of(batch, RecordLimits(True, 0, 2**53))[1] == list(range(2_000))


def test_first_wrong_timestamp_decides_the_error_also_behind_all_that_are_named() -> None:
    """As Kafka: its producers do not send a batch again whose timestamps are refused."""
    records = [SimpleRecord(None, None, (), NOW_MS)] * 2_500
    records[2_300] = records[2_400] = SimpleRecord(b"k", None, (), 5)
    error_code, indices = errors_of(build_batch(records), RecordLimits(True, NOW_MS, NOW_MS))
    assert (error_code, indices) == (ErrorCode.invalid_timestamp, [*range(2_000), 2_300])


def test_record_larger_than_what_is_held_is_passed_over_in_pieces() -> None:
    """A hundred bytes of zstd may be a value of a hundred megabytes."""
    large = 3 * LARGEST_HELD_BYTES
    records = [
        SimpleRecord(b"k", bytes(10)),
        SimpleRecord(bytes(large), bytes(large), (("h", bytes(large)), ("n", None)), 5),
        SimpleRecord(None, None, (), 9),
    ]
    batch = build_batch(records)
    header, payload = read_header(batch), batch[HEADER_BYTES:]

    def walk_over(payload: bytes, count: int = 3) -> RecordWalk:
        walk = RecordWalk(header._replace(record_count=count), LIMITS)
        walk_pieces(walk, (payload[at : at + 100_000] for at in range(0, len(payload), 100_000)))
        walk.finish()
        return walk

    assert walk_over(payload).max_timestamp == 9
    second = len(record(value=bytes(10))) + 1
    for broken, count in (
        (payload, 2),
        (payload[:-1], 3),
        (payload[: large + 100], 3),
        (payload[:second] + b"\x02" + payload[second:], 3),
        (payload.replace(b"\x02h", b"\x01h"), 3),
    ):
        with pytest.raises(KafkaError) as raised:
            walk_over(broken, count)
        assert raised.value.error_code is ErrorCode.invalid_record


def test_usual_records_in_pieces_are_compared_as_a_whole_also_behind_the_first_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The few bytes of a record that a piece ends with tell nothing of the records in the next one."""
    sizes = random.Random(5).choices(range(100, 160), k=4_000)
    batch = build_batch([SimpleRecord(None, bytes([7]) * size, (), NOW_MS) for size in sizes])
    payload = batch[HEADER_BYTES:]
    monkeypatch.setattr(walk_columns, "read_columns", None)  # the slower way
    walk = RecordWalk(read_header(batch), LIMITS)
    walk_pieces(walk, (payload[at : at + 100_000] for at in range(0, len(payload), 100_000)))
    walk.finish()


def test_walk_stops_at_the_piece_that_shows_too_many() -> None:
    """A producer that claims few records cannot make a leader walk through gigabytes of them."""
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"".join(record(100 * (taken - 1) + index, value=bytes(1_000)) for index in range(100))

    with pytest.raises(KafkaError):
        walk_pieces(RecordWalk(read_header(batch_of(b"", 150)), LIMITS), pieces())
    assert taken == 2


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_the_java_client_are_stored_as_they_are(codec: Codec) -> None:
    """Whatever is refused, it is not what everybody sends."""
    sent = JAVA_BATCHES[codec]
    assert examined(sent)[0] == sent
