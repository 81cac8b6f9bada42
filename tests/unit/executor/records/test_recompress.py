"""Changing a batch's codec."""

import pytest

from sparklog.executor.records.examination import recompress
from sparklog.protocol.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    read_header,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec, decompress
from tests.unit.sparklog.protocol.records.samples import JAVA_BATCHES, JAVA_RECORDS


def recompressed(batch: bytes, target: Codec, level: int | None = None) -> tuple[bytes, BatchHeader]:
    header = read_header(batch)
    return recompress(decompress(header.codec, batch[HEADER_BYTES:], 1 << 20), header, target, level)


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_recompressed_batch_holds_the_same_records(source: Codec, target: Codec) -> None:
    """From any codec to any, with a CRC that holds and every other field as it was."""
    batch = JAVA_BATCHES[source]
    before = read_header(batch)
    result, header = recompressed(batch, target)
    check_crc(result, 0, header)
    assert read_header(result) == header
    assert header._replace(batch_length=0, crc=0) == before._replace(
        batch_length=0, crc=0, attributes=int(target)
    )
    assert tuple(read_records(result, header)) == JAVA_RECORDS


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
    _, header = recompressed(batch, Codec.ZSTD, level=5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 2, 77)
    assert header.is_transactional
    assert header.codec is Codec.ZSTD


def test_recompressing_leaves_out_a_delete_horizon_that_a_producer_has_set() -> None:
    """The cleaner alone sets it; with another's, the tombstones of the batch would be due at once."""
    batch = build_batch([SimpleRecord(b"k", None)], codec=Codec.GZIP)
    header = read_header(batch)
    forged = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT)
    payload = decompress(Codec.GZIP, batch[HEADER_BYTES:], 1 << 20)
    _, stored = recompress(payload, forged, Codec.ZSTD, None)
    assert stored.attributes == Codec.ZSTD
