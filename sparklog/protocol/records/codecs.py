"""The five codecs of record batches, in the framings of Kafka's clients.

Levels follow Kafka's `compression.<codec>.level` settings. Decompression is bounded: a batch that claims or
produces more than `limit_bytes` raises `DecompressionLimitError` before the memory is allocated. A caller
that needs the bytes only once takes them in pieces (`decompressed_pieces`), which bounds its memory by one
piece. All functions release the interpreter lock.
"""

import threading
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from sparklog.protocol.errors import ErrorCode, KafkaError

DEFAULT_DECOMPRESSED_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Limit for the decompressed records of one batch: far beyond common producers, far below harm."""


class Codec(IntEnum):
    """A codec, with its number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptPayloadError(KafkaError):
    """The codec cannot read the compressed records of a batch."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class DecompressionLimitError(KafkaError):
    """The records of a batch decompress to more than the reader's limit."""

    def __init__(self, codec: Codec, limit_bytes: int) -> None:
        super().__init__(
            ErrorCode.message_too_large,
            f"records compressed with {codec.name.lower()} decompress to more than {limit_bytes} bytes",
        )


_CODECS = tuple(Codec)

_GZIP_WBITS: Final = 31
_LZ4_KAFKA_DEFAULT_LEVEL: Final = 9
_LZ4_FAST_LEVEL: Final = 1
_LZ4_HIGHEST_LEVEL: Final = 12
_ZSTD_LEVEL: Final = 3
_ZSTD_USUAL_RATIO: Final = 64
"""Frames that may hold more than so many times their size are decompressed in pieces."""
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
"""The most that a block holds."""
_ZSTD_LONGEST_HEADER_BYTES: Final = 18
_ZSTD_REPEATED_BYTE: Final = 1
"""Type of a block that is one repeated byte."""
_PIECE_BYTES: Final = 128 * 1024
_FIRST_FEED_BYTES: Final = 128 * 1024
"""Bytes given to a decoder at a time in the first frame, mostly the only one: a block that comes whole is not
copied into a buffer of the decoder before,"""
_FEED_BYTES: Final = 16 * 1024
"""and in further frames: at the end of each the decoder copies the unused rest."""

# Kafka's snappy is that of the xerial library: a magic, two version numbers, then blocks, each a
# big-endian length and raw snappy. Some clients write one raw block alone.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_HIGHEST_RATIO: Final = 24
"""Three bytes of raw snappy stand for at most 64."""


def codec_of(attributes: int) -> Codec:
    """Return the codec of a batch's attributes.

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
    """Return `payload` compressed; `level` None means the codec's default, as in Kafka.

    Levels: gzip -1 to 9, lz4 1 to 17 (9, the default, is the fast compressor, as in Kafka; the library ends
    at 12), zstd -131072 to 22. Snappy ignores the level.
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
            if level is None:
                return _zstd.compressor.compress(payload)
            return zstandard.ZstdCompressor(level=level).compress(payload)


class _ZstdContexts(threading.local):
    """Compression contexts of a thread: creating them costs a third of a batch's time."""

    def __init__(self) -> None:
        self.compressor: Final = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        self.decompressor: Final = zstandard.ZstdDecompressor()


_zstd: Final = _ZstdContexts()


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


def decompress(
    codec: Codec, payload: bytes | memoryview, limit_bytes: int, *, one_member: bool = False
) -> bytes | memoryview:
    """Return the decompressed `payload`; for NONE that is `payload` itself.

    With `one_member` a gzip stream of several members is refused: librdkafka reads only the first.

    Raises:
        DecompressionLimitError: it would be longer than `limit_bytes`.
        CorruptPayloadError: the codec cannot read it.
    """
    if codec is Codec.ZSTD and (whole := _decompress_zstd_at_once(payload, limit_bytes)) is not None:
        return whole
    pieces = list(decompressed_pieces(codec, payload, limit_bytes, one_member=one_member))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def decompressed_pieces(
    codec: Codec, payload: bytes | memoryview, limit_bytes: int, *, one_member: bool = False
) -> Iterator[bytes | memoryview]:
    """Yield the decompressed `payload` in pieces of at most 128 KiB; snappy's in its own blocks.

    Raises:
        DecompressionLimitError: it exceeds `limit_bytes`; raised after at most one piece too many.
        CorruptPayloadError: the codec cannot read it.
    """
    left_bytes = limit_bytes
    for piece in _pieces(codec, memoryview(payload), limit_bytes, one_member=one_member):
        left_bytes -= len(piece)
        if left_bytes < 0:
            raise DecompressionLimitError(codec, limit_bytes)
        yield piece


def _pieces(
    codec: Codec, payload: memoryview, limit_bytes: int, *, one_member: bool
) -> Iterator[bytes | memoryview]:
    match codec:
        case Codec.NONE:
            return iter((payload,))
        case Codec.GZIP:
            return _gzip_pieces(payload, one_member=one_member)
        case Codec.SNAPPY:
            return _snappy_pieces(payload, limit_bytes)
        case Codec.LZ4:
            return _lz4_pieces(payload)
        case Codec.ZSTD:
            return _zstd_pieces(payload)


def _gzip_pieces(payload: memoryview, *, one_member: bool) -> Iterator[bytes]:
    """Yield the pieces of a gzip stream, which may have several members, each with a checksum."""
    member = zlib.decompressobj(_GZIP_WBITS)
    position, feed_bytes = 0, _FIRST_FEED_BYTES
    try:
        while True:
            feed = member.unconsumed_tail or payload[position : position + feed_bytes]
            if not member.unconsumed_tail:
                position += len(feed)
            piece = member.decompress(feed, _PIECE_BYTES)
            if piece:
                yield piece
            if member.eof:
                position -= len(member.unused_data)
                if position == len(payload):
                    return
                if one_member:
                    raise CorruptPayloadError(
                        f"gzip has {len(payload) - position} bytes behind its first member, where librdkafka "
                        "stops: compress all records of a batch at once"
                    )
                member, feed_bytes = zlib.decompressobj(_GZIP_WBITS), _FEED_BYTES
            elif not piece and position == len(payload) and not member.unconsumed_tail:
                raise CorruptPayloadError("gzip stream is incomplete")
    except zlib.error as error:
        raise CorruptPayloadError(f"records are not gzip: {error}") from error


def _lz4_pieces(payload: memoryview) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    position, feed_bytes = 0, _FIRST_FEED_BYTES
    try:
        while True:
            feed = payload[position : position + feed_bytes] if frame.needs_input else b""
            if frame.needs_input and not feed:
                raise CorruptPayloadError("lz4 frame is incomplete")
            position += len(feed)
            piece = frame.decompress(feed, _PIECE_BYTES)
            if piece:
                yield piece
            if frame.eof:
                position -= len(frame.unused_data or b"")
                if position == len(payload):
                    return
                frame, feed_bytes = lz4.frame.LZ4FrameDecompressor(), _FEED_BYTES
    except RuntimeError as error:
        raise CorruptPayloadError(f"records are not lz4: {error}") from error


def _snappy_pieces(payload: memoryview, limit_bytes: int) -> Iterator[bytes]:
    try:
        for block in snappy_blocks(payload):
            length = cramjam.snappy.decompress_raw_len(block)
            if length > limit_bytes:
                raise DecompressionLimitError(Codec.SNAPPY, limit_bytes)
            if length > len(block) * _SNAPPY_HIGHEST_RATIO:
                raise CorruptPayloadError(f"a snappy block of {len(block)} bytes claims to hold {length}")
            yield bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptPayloadError(f"records are not snappy: {error}") from error


def snappy_blocks(payload: memoryview) -> Iterator[memoryview]:
    """Yield the raw snappy blocks in xerial's framing; without its magic `payload` is one block.

    Raises:
        CorruptPayloadError: a block is incomplete.
    """
    if bytes(payload[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield payload
        return
    position = len(_XERIAL_HEADER)
    while position < len(payload):
        end = position + 4 + int.from_bytes(payload[position : position + 4], "big")
        if end > len(payload):
            raise CorruptPayloadError(f"the snappy block at position {position} ends after the records")
        yield payload[position + 4 : end]
        position = end


def _decompress_zstd_at_once(payload: bytes | memoryview, limit_bytes: int) -> bytes | None:
    """Decompress one frame in one call if its size is claimed or its blocks bound it; else return None.

    The caller then takes the bounded way, which also finds the error. The library would decompress only the
    first of several frames.
    """
    try:
        frame_count, block_count = _zstd_frames_and_blocks(memoryview(payload))
        if frame_count != 1:
            return None
        claimed = zstandard.frame_content_size(payload)
    except zstandard.ZstdError:
        return None
    if claimed > limit_bytes:
        raise DecompressionLimitError(Codec.ZSTD, limit_bytes)
    most_bytes = block_count * _ZSTD_BLOCK_BYTES
    room_bytes = most_bytes if claimed < 0 else claimed
    if (
        claimed == 0  # of a frame of nothing the library does not look at the rest
        or claimed > most_bytes
        or (claimed < 0 and most_bytes - _ZSTD_BLOCK_BYTES >= limit_bytes)
        or room_bytes > len(payload) * _ZSTD_USUAL_RATIO + _PIECE_BYTES
    ):
        return None
    room_bytes = min(room_bytes, limit_bytes)
    try:
        return _zstd.decompressor.decompress(payload, max_output_size=room_bytes, allow_extra_data=False)
    except zstandard.ZstdError:
        return None


def _zstd_pieces(payload: memoryview) -> Iterator[bytes]:
    try:
        _zstd_frames_and_blocks(payload)
        with zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise CorruptPayloadError(f"records are not zstd: {error}") from error


def _zstd_frames_and_blocks(payload: memoryview) -> tuple[int, int]:
    """Return the numbers of frames and of blocks with contents in them.

    The last frame must be complete, which the library's stream does not check.

    A frame (RFC 8878) is a header, blocks and an optional checksum of 4 bytes; a block is 3 bytes, little-
    endian, of which bit 0 says that it is the last, bits 1 and 2 its type, and the rest its size.

    Raises:
        CorruptPayloadError: there is none, or the last one is incomplete.
        ZstdError: a frame header is malformed.
    """
    position = frames = blocks = 0
    while position < len(payload):
        frames += 1
        if 0x184D2A50 <= int.from_bytes(payload[position : position + 4], "little") <= 0x184D2A5F:
            position += 8 + int.from_bytes(payload[position + 4 : position + 8], "little")
            continue
        header = payload[position : position + _ZSTD_LONGEST_HEADER_BYTES]
        checksum_bytes = 4 * zstandard.get_frame_parameters(header).has_checksum
        position += zstandard.frame_header_size(header)
        last = False
        while not last and position < len(payload):
            block = int.from_bytes(payload[position : position + 3], "little")
            last = block & 1 == 1
            position += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED_BYTE else block >> 3)
            blocks += block >> 3 > 0
        position += checksum_bytes
        if not last:
            break
    else:
        if position == len(payload) > 0:
            return frames, blocks
    raise CorruptPayloadError("zstd frame is incomplete")
