"""Changing a batch's codec."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import CorruptBatchError, check_crc, header_bytes, read_header
from sparklog.records.builder import SimpleRecord, build_batch, read_records
from sparklog.records.codecs import Codec
from sparklog.records.recompress import recompress
from tests.unit.records.samples import JAVA_BATCHES, JAVA_RECORDS


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_recompressed_batch_holds_the_same_records(source: Codec, target: Codec) -> None:
    """From any codec to any, with a CRC that holds and every other field as it was."""
    batch = JAVA_BATCHES[source]
    before = read_header(batch)
    result, header = recompress(batch, before, target)
    check_crc(result, 0, header)
    assert read_header(result) == header
    assert header._replace(batch_length=0, crc=0) == before._replace(
        batch_length=0, crc=0, attributes=int(target)
    )
    assert tuple(read_records(result, header)) == JAVA_RECORDS


def test_recompressing_to_the_same_codec_touches_nothing() -> None:
    """The producer has done the work already."""
    batch = JAVA_BATCHES[Codec.GZIP]
    result, header = recompress(batch, read_header(batch), Codec.GZIP, level=1)
    assert result is batch
    assert header == read_header(batch)


def test_recompressing_keeps_producer_fields_and_other_attributes() -> None:
    """The sequence check and read_committed depend on them."""
    batch = build_batch(
        [SimpleRecord(b"k", b"v" * 100)],
        producer_id=8,
        producer_epoch=2,
        base_sequence=77,
        transactional=True,
        codec=Codec.LZ4,
    )
    _, header = recompress(batch, read_header(batch), Codec.ZSTD, level=5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 2, 77)
    assert header.is_transactional
    assert header.codec is Codec.ZSTD


def test_recompressing_damage_and_bombs_raises() -> None:
    """A CRC does not make a payload readable or small."""
    batch = JAVA_BATCHES[Codec.ZSTD]
    garbage = header_bytes(read_header(batch), b"garbage") + b"garbage"
    with pytest.raises(KafkaError) as raised:
        recompress(garbage, read_header(garbage), Codec.NONE)
    assert raised.value.error_code is ErrorCode.corrupt_message
    with pytest.raises(KafkaError) as raised:
        recompress(batch, read_header(batch), Codec.NONE, limit_bytes=100)
    assert raised.value.error_code is ErrorCode.invalid_record
    assert not isinstance(raised.value, CorruptBatchError)
