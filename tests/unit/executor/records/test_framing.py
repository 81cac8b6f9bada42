"""Compressed records that some library reads, and that not all clients would."""

import gzip

import cramjam
import lz4.frame
import pytest
import zstandard

from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.walk import RecordLimits
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import HEADER_BYTES, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec, compress

DEMANDS = Demands(1 << 24, 1 << 24, RecordLimits(False, 0, 2**53))
BATCH = build_batch([SimpleRecord(b"k", bytes([index]) * 3_000, (), 1) for index in range(100)])
PAYLOAD = BATCH[HEADER_BYTES:]
HALVES = (PAYLOAD[: len(PAYLOAD) // 2], PAYLOAD[len(PAYLOAD) // 2 :])


def lz4_frame(payload: bytes = PAYLOAD, **options: object) -> bytes:
    settings = {"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX64KB, **options}
    return bytes(lz4.frame.compress(payload, **settings))


def changed(data: bytes, position: int, value: int) -> bytes:
    return data[:position] + bytes([value]) + data[position + 1 :]


def with_empty_block(frame: bytes) -> bytes:
    """Return an lz4 frame with a block that holds nothing in front."""
    return frame[:7] + b"\1\0\0\0\0" + frame[7:]


XERIAL = compress(Codec.SNAPPY, PAYLOAD)
WIDE = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=28))


def wide_window() -> bytes:
    """Return zstd whose frame asks for a window of 256 MiB, of which it needs next to nothing."""
    writer = WIDE.compressobj()
    return writer.compress(PAYLOAD) + writer.flush()


READABLE = {
    "lz4 as Kafka's client writes it": (Codec.LZ4, compress(Codec.LZ4, PAYLOAD)),
    "lz4 of several blocks": (Codec.LZ4, lz4_frame()),
    "lz4 with its size": (Codec.LZ4, lz4_frame(store_size=True)),
    "lz4 with checksums": (Codec.LZ4, lz4_frame(content_checksum=True, block_checksum=True)),
    "lz4 in blocks of 4 MB": (Codec.LZ4, lz4_frame(block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "gzip": (Codec.GZIP, gzip.compress(PAYLOAD)),
    "snappy without framing": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(PAYLOAD))),
    "zstd of two frames": (Codec.ZSTD, b"".join(map(zstandard.ZstdCompressor().compress, HALVES))),
    "zstd behind a frame to be skipped": (
        Codec.ZSTD,
        b"\x50\x2a\x4d\x18\x03\0\0\0abc" + compress(Codec.ZSTD, PAYLOAD),
    ),
    "zstd with a checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(PAYLOAD)),
}
UNREADABLE = {
    "lz4 of linked blocks": (Codec.LZ4, lz4_frame(block_linked=True)),
    "lz4 of two frames": (Codec.LZ4, lz4_frame(HALVES[0]) + lz4_frame(HALVES[1])),
    "lz4 and an empty frame": (Codec.LZ4, lz4_frame() + lz4_frame(b"")),
    "lz4 behind a frame to be skipped": (Codec.LZ4, b"\x50\x2a\x4d\x18\x03\0\0\0abc" + lz4_frame()),
    "lz4 with a dictionary": (Codec.LZ4, changed(lz4_frame(), 4, 0x61)),
    "lz4 of another version": (Codec.LZ4, changed(lz4_frame(), 4, 0xA0)),
    "lz4 with an unknown block size": (Codec.LZ4, changed(lz4_frame(), 5, 0x30)),
    "lz4 with a wrong header checksum": (Codec.LZ4, changed(lz4_frame(), 6, lz4_frame()[6] ^ 1)),
    "lz4 with a block of nothing": (Codec.LZ4, with_empty_block(lz4_frame())),
    "lz4 that is cut off": (Codec.LZ4, lz4_frame()[:-4]),
    "lz4 that ends in a length": (Codec.LZ4, lz4_frame()[:-2]),
    "lz4 of a few bytes": (Codec.LZ4, lz4_frame()[:5]),
    "gzip of two members": (Codec.GZIP, gzip.compress(HALVES[0]) + gzip.compress(HALVES[1])),
    "gzip that is cut off": (Codec.GZIP, gzip.compress(PAYLOAD)[:-3]),
    "gzip with a wrong checksum": (Codec.GZIP, gzip.compress(PAYLOAD)[:-8] + bytes(8)),
    "snappy whose framing is cut off": (Codec.SNAPPY, XERIAL[:12]),
    "zstd with a window of 256 MiB": (Codec.ZSTD, wide_window()),
    "zstd that is cut off": (Codec.ZSTD, compress(Codec.ZSTD, PAYLOAD)[:-2]),
    "not compressed at all": (Codec.ZSTD, PAYLOAD),
}


def refusal(codec: Codec, compressed: bytes, demands: Demands = DEMANDS) -> ErrorCode | None:
    header = read_header(BATCH)._replace(attributes=codec)
    sent = header_bytes(header, compressed) + compressed
    try:
        examine(sent, read_header(sent), demands)
    except KafkaError as error:
        return error.error_code
    return None


@pytest.mark.parametrize("what", READABLE)
def test_records_compressed_as_clients_read_them_are_taken(what: str) -> None:
    """Also in forms that no client of today writes: others may, and Kafka takes them."""
    assert refusal(*READABLE[what]) is None


@pytest.mark.parametrize("what", UNREADABLE)
def test_records_compressed_as_some_client_cannot_read_them_are_refused(what: str) -> None:
    """Whether they are looked at in one piece or in several, and in a topic with a codec of its own."""
    demands = (DEMANDS, DEMANDS._replace(max_decompressed_bytes=1 << 19), DEMANDS._replace(codec=Codec.GZIP))
    codec, compressed = UNREADABLE[what]
    for each in demands:
        assert refusal(codec, compressed, each) is ErrorCode.invalid_record
