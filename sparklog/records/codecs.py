"""The five codecs of record batches, in the framings that Kafka's clients use.

Levels follow Kafka's `compression.<codec>.level` settings. Decompression is bounded: a batch that claims
or produces more than `limit_bytes` raises `DecompressionLimitError` before the memory is taken.
"""

import zlib
from enum import IntEnum
from typing import Final

import cramjam
import zstandard

from sparklog.errors import ErrorCode, KafkaError

__all__ = [
    "DEFAULT_DECOMPRESSED_LIMIT_BYTES",
    "Codec",
    "CorruptPayloadError",
    "DecompressionLimitError",
    "codec_of",
    "compress",
    "decompress",
]

DEFAULT_DECOMPRESSED_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""What the records of one batch may grow to: far beyond what producers make, far below what hurts."""


class Codec(IntEnum):
    """A codec under its number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptPayloadError(KafkaError):
    """The compressed records of a batch are not what their codec can read."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class DecompressionLimitError(KafkaError):
    """The records of a batch decompress to more than the reader is willing to hold."""

    def __init__(self, codec: Codec, limit_bytes: int) -> None:
        super().__init__(
            ErrorCode.invalid_record,
            f"records compressed with {codec.name.lower()} decompress to more than {limit_bytes} bytes",
        )
        self.limit_bytes = limit_bytes


_CODECS = tuple(Codec)

_GZIP_WBITS: Final = 31
_LZ4_KAFKA_DEFAULT_LEVEL: Final = 9
_LZ4_FAST_LEVEL: Final = 1
_LZ4_HIGHEST_LEVEL: Final = 12
_ZSTD_LEVEL: Final = 3
_ZSTD_USUAL_RATIO: Final = 8
_STREAM_CHUNK_BYTES: Final = 256 * 1024

# Kafka's snappy is that of the xerial library: a magic, two version numbers, then blocks, each a
# big-endian length and raw snappy. Some clients write one raw block alone.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_HIGHEST_RATIO: Final = 24
"""Three bytes of raw snappy stand for at most 64."""


def codec_of(attributes: int) -> Codec:
    """Return the codec that a batch's attributes name.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for the unassigned numbers 5 to 7.
    """
    number = attributes & 0x07
    if number >= len(_CODECS):
        raise KafkaError(
            ErrorCode.unsupported_compression_type, f"{number} is not the number of a compression codec"
        )
    return _CODECS[number]


def compress(codec: Codec, payload: bytes | memoryview, level: int | None = None) -> bytes:
    """Return `payload` compressed; `level` None means the codec's default, as Kafka has it.

    Levels: gzip -1 to 9, lz4 1 to 17 (9, the default, is the fast compressor, as in Kafka; the library ends
    at 12), zstd -131072 to 22. Snappy has none and ignores it.
    """
    match codec:
        case Codec.NONE:
            return bytes(payload)
        case Codec.GZIP:
            return zlib.compress(payload, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WBITS)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(payload))
        case Codec.LZ4:
            return _compress_lz4(payload, level)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level).compress(payload)


def _compress_lz4(payload: bytes | memoryview, level: int | None) -> bytes:
    fast = level is None or level == _LZ4_KAFKA_DEFAULT_LEVEL
    library_level = _LZ4_FAST_LEVEL if fast else min(level or 0, _LZ4_HIGHEST_LEVEL)
    # Kafka's Java clients read frames of independent blocks only, which is not the library's default.
    compressor = cramjam.lz4.Compressor(level=library_level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(payload))
    return bytes(compressor.finish())


def _compress_snappy(payload: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def decompress(codec: Codec, payload: bytes | memoryview, limit_bytes: int) -> bytes | memoryview:
    """Return the decompressed `payload`; for NONE that is `payload` itself.

    Raises:
        DecompressionLimitError: it would be longer than `limit_bytes`.
        CorruptPayloadError: the codec cannot read it.
    """
    match codec:
        case Codec.NONE:
            if len(payload) > limit_bytes:
                raise DecompressionLimitError(codec, limit_bytes)
            return payload
        case Codec.GZIP:
            return _decompress_gzip(payload, limit_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(payload), limit_bytes)
        case Codec.LZ4:
            return _decompress_stream(codec, payload, limit_bytes)
        case Codec.ZSTD:
            return _decompress_zstd(payload, limit_bytes)


def _decompress_gzip(payload: bytes | memoryview, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = limit_bytes
    rest: bytes | memoryview = payload
    while True:  # once a member: a gzip stream may be several, one after the other
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptPayloadError(f"records are no gzip: {error}") from error
        if len(part) > room:
            raise DecompressionLimitError(Codec.GZIP, limit_bytes)
        if not member.eof:
            raise CorruptPayloadError("gzip ends before its end")
        room -= len(part)
        parts.append(part)
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(payload: memoryview, limit_bytes: int) -> memoryview:
    blocks = _snappy_blocks(payload)
    try:
        lengths = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    except cramjam.DecompressionError as error:
        raise CorruptPayloadError(f"records are no snappy: {error}") from error
    if sum(lengths) > limit_bytes:
        raise DecompressionLimitError(Codec.SNAPPY, limit_bytes)
    for block, length in zip(blocks, lengths, strict=True):
        if length > len(block) * _SNAPPY_HIGHEST_RATIO:
            raise CorruptPayloadError(f"a snappy block of {len(block)} bytes claims to hold {length}")
    target = memoryview(bytearray(sum(lengths)))
    position = 0
    try:
        for block, length in zip(blocks, lengths, strict=True):
            cramjam.snappy.decompress_raw_into(block, target[position : position + length])
            position += length
    except cramjam.DecompressionError as error:
        raise CorruptPayloadError(f"records are no snappy: {error}") from error
    return target.toreadonly()


def _snappy_blocks(payload: memoryview) -> list[memoryview]:
    """Return the raw snappy blocks in xerial's framing; without its magic all of `payload` is one."""
    if bytes(payload[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [payload]
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(payload):
        end = position + 4 + int.from_bytes(payload[position : position + 4], "big")
        if end > len(payload):
            raise CorruptPayloadError(f"the snappy block at position {position} ends after the records")
        blocks.append(payload[position + 4 : end])
        position = end
    return blocks


def _decompress_zstd(payload: bytes | memoryview, limit_bytes: int) -> bytes:
    try:
        claimed = zstandard.frame_content_size(payload)
    except zstandard.ZstdError as error:
        raise CorruptPayloadError(f"records are no zstd: {error}") from error
    if claimed > limit_bytes:
        raise DecompressionLimitError(Codec.ZSTD, limit_bytes)
    guess = min(limit_bytes, len(payload) * _ZSTD_USUAL_RATIO + _STREAM_CHUNK_BYTES)
    if claimed <= guess:
        # One call where the size is known (claimed) or likely to do. What it refuses, for room or because
        # there are several frames, goes the bounded way, which also tells what is wrong.
        try:
            return zstandard.ZstdDecompressor().decompress(
                payload, max_output_size=guess, allow_extra_data=False
            )
        except zstandard.ZstdError:
            pass
    return _decompress_stream(Codec.ZSTD, payload, limit_bytes)


def _decompress_stream(codec: Codec, payload: bytes | memoryview, limit_bytes: int) -> bytes:
    """Decompress piece by piece, so that what is held never exceeds the limit by more than a piece."""
    # Here and not above: a broker passes batches on as they are, and starts sooner and smaller without Arrow.
    import pyarrow as pa

    parts: list[bytes] = []
    total_bytes = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(payload)), codec.name.lower()) as stream:
            while part := stream.read(_STREAM_CHUNK_BYTES):
                parts.append(part)
                total_bytes += len(part)
                if total_bytes > limit_bytes:
                    raise DecompressionLimitError(codec, limit_bytes)
    except (OSError, pa.ArrowException) as error:
        raise CorruptPayloadError(f"records are no {codec.name.lower()}: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)
