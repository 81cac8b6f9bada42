"""The batches that a request has examined at once, and those that it leaves to a thread."""

import random

import pytest
import zstandard

from sparklog.executor.api.produce.produce import ExaminationBudget
from sparklog.executor.records import examination
from sparklog.executor.records.examination import Demands
from sparklog.executor.records.walk import RecordLimits
from sparklog.protocol.records.batch import HEADER_BYTES, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec

LIMIT_BYTES = 1 << 26
DEMANDS = Demands(LIMIT_BYTES, 1 << 20, RecordLimits(False, 0, 2**53))


def batch(payload_bytes: int, codec: Codec = Codec.ZSTD) -> bytes:
    """Return a batch of about so many bytes of records before it was compressed."""
    words = [b"%08x" % number for number in range(200)]
    chosen = random.Random(payload_bytes)
    count = payload_bytes // 1_000
    records = [SimpleRecord(None, b"".join(chosen.choices(words, k=124)), (), 1) for _ in range(count)]
    return build_batch(records, codec=codec)


def streamed(plain: bytes) -> bytes:
    """Return the batch as Java's producer compresses it: without its size, with a last block of nothing."""
    stream = zstandard.ZstdCompressor().compressobj()
    parts = (stream.compress(plain[HEADER_BYTES:]), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    payload = b"".join((*parts, stream.flush()))
    return header_bytes(read_header(plain)._replace(attributes=Codec.ZSTD), payload) + payload


def are_examined(*sent: bytes) -> list[bool]:
    """Return which batches of one request are examined at once."""
    budget = ExaminationBudget(LIMIT_BYTES)
    return [budget.examined(each, read_header(each), DEMANDS) is not None for each in sent]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_request_has_as_much_decompressed_at_once_as_takes_a_millisecond_in_all(codec: Codec) -> None:
    """A hop to a thread costs more than a small batch; many of these would keep the loop from others."""
    size_bytes = 100_000 if codec is Codec.GZIP else 200_000  # which takes twice as long
    assert are_examined(*[batch(size_bytes, codec)] * 4) == [True, True, False, False]
    assert are_examined(batch(2 * size_bytes, codec)) == [True]
    assert are_examined(batch(3 * size_bytes, codec)) == [False]


def test_batch_of_a_java_producer_that_expands_six_times_is_examined_at_once() -> None:
    """A batch.size of 64 KiB, by which that producer means compressed bytes, and events as JSON."""
    assert are_examined(streamed(batch(450_000, Codec.NONE))) == [True]


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP, Codec.LZ4])
def test_batch_that_is_left_to_a_thread_is_not_decompressed_before(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its framing tells that it is too much: the work would be done twice."""
    monkeypatch.setattr(examination, "decompress", None)
    assert are_examined(batch(700_000, codec)) == [False]
    assert are_examined(streamed(batch(700_000, Codec.NONE))) == [False]
