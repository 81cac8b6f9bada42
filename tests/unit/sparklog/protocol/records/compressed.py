"""Compressed bytes as producers may send them, damaged ones too, and the plainest way to read them."""

import gzip
import random
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import cramjam
import lz4.frame
import zstandard
from hypothesis import strategies as st

from sparklog.protocol.records.codecs import Codec, compress

_XERIAL_HEADER_BYTES: Final = 16
Compress = Callable[[bytes], bytes]


def _zstd(**settings: Any) -> Compress:
    return lambda payload: zstandard.ZstdCompressor(**settings).compress(payload)


def _zstd_streamed(payload: bytes) -> bytes:
    """Return a frame without its size, in blocks that are not full, as one who flushes makes them."""
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    parts = []
    for at in range(0, len(payload), 50_000):
        parts.append(stream.compress(payload[at : at + 50_000]))
        parts.append(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    return b"".join((*parts, stream.flush()))


def _lz4(**settings: Any) -> Compress:
    return lambda payload: bytes(lz4.frame.compress(payload, **settings))


def _kafka(codec: Codec) -> Compress:
    return lambda payload: compress(codec, payload)


WAYS: Final[Mapping[str, tuple[Codec, Compress]]] = {
    "gzip": (Codec.GZIP, _kafka(Codec.GZIP)),
    "gzip, stored": (Codec.GZIP, lambda payload: gzip.compress(payload, 0)),
    "snappy": (Codec.SNAPPY, _kafka(Codec.SNAPPY)),
    "snappy, one block": (Codec.SNAPPY, lambda payload: bytes(cramjam.snappy.compress_raw(payload))),
    "lz4": (Codec.LZ4, _kafka(Codec.LZ4)),
    "lz4, linked": (Codec.LZ4, _lz4(block_linked=True)),
    "lz4, checked": (Codec.LZ4, _lz4(block_linked=False, content_checksum=True, block_checksum=True)),
    "lz4, large blocks": (Codec.LZ4, _lz4(block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd": (Codec.ZSTD, _zstd()),
    "zstd, checked": (Codec.ZSTD, _zstd(write_checksum=True)),
    "zstd, without its size": (Codec.ZSTD, _zstd(write_content_size=False)),
    "zstd, streamed": (Codec.ZSTD, _zstd_streamed),
    "zstd, fast": (Codec.ZSTD, _zstd(level=-50, write_content_size=False)),
}


def payloads() -> st.SearchStrategy[bytes]:
    """Return bytes of which blocks of every type are made: random ones, text, zeros, and nothing."""
    sizes = st.one_of(
        st.integers(0, 300), st.integers(0, 300_000), st.sampled_from([131_072, 131_073, 262_144])
    )
    return st.builds(_payload, sizes, st.integers(0, 2**32))


def _payload(size_bytes: int, seed: int) -> bytes:
    chosen = random.Random(seed)
    match seed % 4:
        case 0:
            return chosen.randbytes(size_bytes)
        case 1:
            return bytes([chosen.randrange(256)]) * size_bytes
        case 2:
            return (b'{"flight":%d,"carrier":"UA","delay":0}' % seed * (size_bytes // 30 + 1))[:size_bytes]
        case _:
            return bytes(chosen.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size_bytes))


@st.composite
def damaged(draw: Any, compressed: bytes) -> bytes:
    """Draw a change that a bad producer could make."""
    data = bytearray(compressed)
    chance: random.Random = draw(st.randoms(use_true_random=False))
    match draw(st.sampled_from(["cut", "longer", "bytes", "head", "tail", "lost"])):
        case "cut":
            return bytes(data[: chance.randrange(len(data) + 1)])
        case "longer":
            return bytes(data) + chance.choice([b"\0", bytes(9), bytes(data[:20]), chance.randbytes(12)])
        case "head":
            _change(data, chance, range(min(20, len(data))))
        case "tail":
            _change(data, chance, range(max(0, len(data) - 12), len(data)))
        case "lost":
            at = chance.randrange(len(data) + 1)
            del data[at : at + chance.randint(1, 40)]
        case _:
            _change(data, chance, range(len(data)))
    return bytes(data)


def _change(data: bytearray, chance: random.Random, where: range) -> None:
    for _ in range(chance.randint(1, 3)):
        if where:
            data[chance.choice(where)] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])


def read_plainly(codec: Codec, data: bytes) -> bytes | None:
    """Return what all frames hold, each read by a decoder of its own; None where the last is damaged."""
    try:
        return _PLAIN[codec](data)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError, cramjam.DecompressionError):
        return None


def _by_frames(new_decoder: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def read(data: bytes) -> bytes:
        found = b""
        while True:
            decoder = new_decoder()
            found += decoder.decompress(data)
            if not decoder.eof:
                raise EOFError
            data = decoder.unused_data or b""
            if not data:
                return found

    return read


def _snappy(data: bytes) -> bytes:
    if data[:8] != b"\x82SNAPPY\0":
        return bytes(cramjam.snappy.decompress_raw(data))
    found, at = b"", _XERIAL_HEADER_BYTES
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise EOFError
        found += bytes(cramjam.snappy.decompress_raw(data[at + 4 : end]))
        at = end
    return found


_PLAIN: Final[Mapping[Codec, Callable[[bytes], bytes]]] = {
    Codec.GZIP: _by_frames(lambda: zlib.decompressobj(31)),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _by_frames(lz4.frame.LZ4FrameDecompressor),
    Codec.ZSTD: _by_frames(lambda: zstandard.ZstdDecompressor().decompressobj()),
}
