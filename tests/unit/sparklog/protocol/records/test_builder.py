"""Building and reading batches record by record."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from kio.records.readers import read_batch

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import CorruptBatchError, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec
from tests.examples import examples
from tests.unit.sparklog.protocol.records.samples import JAVA_BATCHES, JAVA_RECORDS, record_lists


def test_built_batch_is_byte_for_byte_javas() -> None:
    """The layout is Kafka's own, down to the CRC."""
    batch = build_batch(JAVA_RECORDS, base_offset=7, leader_epoch=3)
    assert batch == JAVA_BATCHES[Codec.NONE]


@pytest.mark.parametrize("codec", Codec)
def test_java_batch_is_read(codec: Codec) -> None:
    """All five codecs as the Java producer frames them."""
    batch = JAVA_BATCHES[codec]
    assert tuple(read_records(batch, read_header(batch))) == JAVA_RECORDS


@given(record_lists, st.sampled_from(Codec), st.integers(0, 2**62))
@examples(30)
def test_batch_round_trip_keeps_the_records(
    records: list[SimpleRecord], codec: Codec, base_offset: int
) -> None:
    """What is built is read back, with absolute offsets and timestamps."""
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    read = list(read_records(batch, read_header(batch)))
    assert read == [record._replace(offset=base_offset + row) for row, record in enumerate(records)]


@given(record_lists)
@examples(20)
def test_built_batch_is_read_by_others(records: list[SimpleRecord]) -> None:
    """kafka-python and kio have parsers of their own, which must agree."""
    batch = build_batch(records, producer_id=5, producer_epoch=1, base_sequence=9)
    theirs = list(DefaultRecordBatch(batch))
    assert [(record.key, record.value, record.timestamp) for record in theirs] == [
        (record.key, record.value, record.timestamp_ms) for record in records
    ]
    entity, size = read_batch(batch, 0)
    assert size == len(batch)
    assert [(record.key, record.value) for record in entity.records] == [
        (record.key, record.value) for record in records
    ]
    assert (entity.producer_id, entity.producer_epoch, entity.base_sequence) == (5, 1, 9)


def test_given_offsets_leave_gaps() -> None:
    """Compacted batches have them, and keep their last offset."""
    batch = build_batch(
        [SimpleRecord(b"a", b"", offset=10), SimpleRecord(b"b", b"", offset=15)], base_offset=8
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (8, 15, 2)
    assert [record.offset for record in read_records(batch, header)] == [10, 15]


@pytest.mark.parametrize("count", [0, 3, 5, 2**31 - 1])
def test_reading_with_a_wrong_count_raises(count: int) -> None:
    """A count is only a claim: no memory for it, and no record lost unseen."""
    batch = JAVA_BATCHES[Codec.NONE]
    with pytest.raises(CorruptBatchError):
        list(read_records(batch, read_header(batch)._replace(record_count=count)))


@given(st.data())
@examples(60)
def test_reading_damaged_records_raises_only_kafka_errors(data: st.DataObject) -> None:
    """Without a CRC check every damage is possible, and none may escape as another exception."""
    batch = bytearray(JAVA_BATCHES[Codec.NONE])
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(KafkaError):
        assert len(list(read_records(bytes(batch), read_header(batch)))) == 4
