"""The demands of clients on compressed records, beyond being decompressible by some library.

The readers of Kafka's Java clients, and of librdkafka, take less than the formats allow: a batch that they
cannot open stops every consumer of the partition, Spark's connector and Kafka's tools for ever.

- lz4: one frame (of several Java reads the first), of independent blocks, without a dictionary; no block that
  is empty. Rules of Kafka's Lz4BlockInputStream.
- gzip: one member, as librdkafka reads the first of several and leaves out the others; that is found while
  decompressing (`one_member` of `sparklog.protocol.records.codecs`).
- zstd: a window of at most 128 MiB, as streams of the zstd library take it without being asked.
"""

from itertools import islice
from typing import Final

import zstandard

from sparklog.executor.records.walk import CostlyWalkError
from sparklog.protocol.records.codecs import Codec, CorruptPayloadError, snappy_blocks

MANY_BLOCKS: Final = 256
"""More than half a megabyte of records has in any usual framing; to count so many takes some hundred us."""
NO_BOUND: Final = 2**31

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_VERSION_BITS: Final = 0xC0
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_RESERVED: Final = 0x03
"""The lower bit says that there is a dictionary id."""
_LZ4_UNCOMPRESSED: Final = 0x8000_0000
_LZ4_BLOCK_SIZES: Final = {0x40: 64 * 1024, 0x50: 256 * 1024, 0x60: 1024 * 1024, 0x70: 4096 * 1024}

_GZIP_SMALLEST_BYTES: Final = 18
_GZIP_SIZE_BYTES: Final = 4
"""The last bytes of a gzip member (RFC 1952) are the size of what it holds, modulo 2**32."""

_ZSTD_BLOCK_BYTES: Final = 128 * 1024
"""The most that a block holds (RFC 8878); the library writes all but the last one so large."""
_ZSTD_SKIPPABLE: Final = (0x184D2A50, 0x184D2A5F)
_ZSTD_HEADER_BYTES: Final = 18
_ZSTD_LARGEST_WINDOW_BYTES: Final = 1 << 27
_ZSTD_REPEATED_BYTE: Final = 1


def check_framing(codec: Codec, payload: memoryview, most_blocks: int = NO_BOUND) -> int:
    """Check that Kafka's clients can read compressed records, if they can be decompressed at all.

    Returns the size that they are likely to have at least, in bytes, once they are decompressed: as the
    framing claims, or as usual compressors fill so many blocks. 0 if it tells nothing.

    Raises:
        CorruptPayloadError: they cannot.
        CostlyWalkError: there are more than `most_blocks` blocks and frames. A block may hold nothing, and so
            take five bytes of the payload, or three.
    """
    match codec:
        case Codec.LZ4:
            return _check_lz4(payload, most_blocks)
        case Codec.ZSTD:
            return _check_zstd(payload, most_blocks)
        case Codec.GZIP if len(payload) >= _GZIP_SMALLEST_BYTES:
            return int.from_bytes(payload[-_GZIP_SIZE_BYTES:], "little")
        case Codec.SNAPPY if most_blocks < NO_BOUND:
            if next(islice(snappy_blocks(payload), most_blocks, None), None) is not None:
                raise CostlyWalkError
            return 0
        case _:
            return 0


def _check_lz4(payload: memoryview, most_blocks: int) -> int:
    if len(payload) < 7 or bytes(payload[:4]) != _LZ4_MAGIC:
        raise CorruptPayloadError("records are no lz4 frame")
    flags, block_size = payload[4], payload[5]
    if not flags & _LZ4_INDEPENDENT:
        raise CorruptPayloadError(
            "lz4 has linked blocks, which Java clients cannot read: have the compressor make independent ones"
        )
    if flags & _LZ4_VERSION_BITS != _LZ4_VERSION or flags & _LZ4_RESERVED:
        raise CorruptPayloadError(f"lz4 has flags {flags:#04x}: dictionaries and other versions are not read")
    if block_size not in _LZ4_BLOCK_SIZES:
        raise CorruptPayloadError(f"lz4 has the block size byte {block_size:#04x}, which is none")
    position = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    block_count = 0
    while True:
        size = int.from_bytes(payload[position : position + 4], "little")
        if position + 4 > len(payload):
            raise CorruptPayloadError("lz4 ends before its end")
        position += 4
        if size & ~_LZ4_UNCOMPRESSED == 0:
            break
        if size == 1 and position < len(payload) and payload[position] == 0:
            raise CorruptPayloadError("lz4 has a block of nothing, which Java clients cannot read")
        position += (size & ~_LZ4_UNCOMPRESSED) + checksum_bytes
        block_count += 1
        if block_count > most_blocks:
            raise CostlyWalkError
    position += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
    if position != len(payload):
        raise CorruptPayloadError(
            f"lz4 has {len(payload) - position} bytes behind its first frame, where Java clients stop: "
            "compress all records of a batch as one frame"
        )
    return max(0, block_count - 1) * _LZ4_BLOCK_SIZES[block_size]


def _check_zstd(payload: memoryview, most_blocks: int) -> int:
    """Check the header of each frame; the decompressor detects incomplete frames."""
    position = likely_bytes = 0
    left = most_blocks
    while position + 8 <= len(payload):
        left -= 1
        if left < 0:
            raise CostlyWalkError
        magic = int.from_bytes(payload[position : position + 4], "little")
        if _ZSTD_SKIPPABLE[0] <= magic <= _ZSTD_SKIPPABLE[1]:
            position += 8 + int.from_bytes(payload[position + 4 : position + 8], "little")
            continue
        header = payload[position : position + _ZSTD_HEADER_BYTES]
        try:
            parameters = zstandard.get_frame_parameters(header)
            position += zstandard.frame_header_size(header)
        except zstandard.ZstdError as error:
            raise CorruptPayloadError(f"records are no zstd: {error}") from error
        if parameters.window_size > _ZSTD_LARGEST_WINDOW_BYTES:
            raise CorruptPayloadError(
                f"zstd has a window of {parameters.window_size} bytes, clients read 128 MiB at most"
            )
        last = False
        block_count = 0
        while not last and position + 3 <= len(payload):
            block = int.from_bytes(payload[position : position + 3], "little")
            last = block & 1 == 1
            position += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED_BYTE else block >> 3)
            left -= 1
            if left < 0:
                raise CostlyWalkError
            block_count += block >> 3 > 0  # Java's producers flush, and then end with a block of nothing
        position += 4 if parameters.has_checksum else 0
        if parameters.content_size != zstandard.CONTENTSIZE_UNKNOWN:
            likely_bytes += parameters.content_size
        elif block_count > 1:
            likely_bytes += (block_count - 1) * _ZSTD_BLOCK_BYTES + 1
    return likely_bytes
