"""The five codecs: framings, levels, bounds, damage."""

import contextlib
import tracemalloc
from collections.abc import Callable

import aiokafka.codec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.codecs import (
    Codec,
    CorruptPayloadError,
    DecompressionLimitError,
    codec_of,
    compress,
    decompress,
    decompressed_pieces,
)
from tests.examples import examples
from tests.unit.sparklog.protocol.records.compressed import WAYS, damaged, payloads, read_plainly

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
PAYLOAD = b"".join(b'{"flight":%d,"carrier":"UA"}' % number for number in range(9000))
OTHERS = {
    Codec.GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    Codec.SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    Codec.LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    Codec.ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}


@given(st.sampled_from(Codec), st.binary(max_size=5000), st.integers(1, 60))
@examples(30)
def test_codec_round_trip_gives_the_payload(codec: Codec, piece: bytes, times: int) -> None:
    """Views of larger buffers are what the encoder passes in."""
    payload = piece * times
    compressed = compress(codec, memoryview(b"x" + payload)[1:])
    assert bytes(decompress(codec, memoryview(compressed), len(payload))) == payload


@pytest.mark.parametrize("codec", COMPRESSING)
def test_codec_agrees_with_another_client(codec: Codec) -> None:
    """Both ways with aiokafka's framings."""
    encode, decode = OTHERS[codec]
    assert bytes(decode(compress(codec, PAYLOAD))) == PAYLOAD
    assert bytes(decompress(codec, bytes(encode(PAYLOAD)), len(PAYLOAD))) == PAYLOAD


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, -1),
        (Codec.GZIP, 9),
        (Codec.SNAPPY, 3),
        (Codec.LZ4, 1),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, -131072),
        (Codec.ZSTD, 19),
    ],
)
def test_codec_takes_every_level_kafka_takes(codec: Codec, level: int) -> None:
    """The ends of Kafka's ranges are not the ends of the libraries' ranges."""
    assert bytes(decompress(codec, compress(codec, PAYLOAD, level), len(PAYLOAD))) == PAYLOAD


def test_lz4_frame_has_independent_blocks() -> None:
    """Kafka's Java clients cannot read linked ones, which larger frames get by default."""
    flags = compress(Codec.LZ4, PAYLOAD)[4]
    assert flags >> 6 == 1  # frame version
    assert flags & 0x20  # block independence


def test_snappy_without_framing_is_read() -> None:
    """librdkafka has written bare blocks."""
    framed = compress(Codec.SNAPPY, b"abc" * 50)
    assert framed[:8] == b"\x82SNAPPY\0"
    assert bytes(decompress(Codec.SNAPPY, framed[20:], 150)) == b"abc" * 50


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_frames_in_a_row_are_read_as_one(codec: Codec) -> None:
    """The formats allow it, and streaming writers use it."""
    assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), 100) == b"onetwo"


@pytest.mark.parametrize("size_is_said", [True, False])
def test_zstd_frames_that_do_not_say_their_size_or_are_empty_hide_none_after_them(size_is_said: bool) -> None:
    """Streaming producers write such frames; who stops after the first loses the records after it."""
    compressor = zstandard.ZstdCompressor(write_content_size=size_is_said)
    half = len(PAYLOAD) // 2
    for parts in ((PAYLOAD[:half], PAYLOAD[half:]), (b"", PAYLOAD), (PAYLOAD, b"")):
        frames = b"".join(compressor.compress(part) for part in parts)
        assert decompress(Codec.ZSTD, frames, len(PAYLOAD)) == PAYLOAD


@pytest.mark.parametrize("codec", Codec)
def test_decompression_beyond_the_limit_raises(codec: Codec) -> None:
    """A few kilobytes can stand for gigabytes."""
    bomb = compress(codec, bytes(1 << 22))
    assert len(decompress(codec, bomb, 1 << 22)) == 1 << 22
    for limit in (0, 1000, (1 << 22) - 1):
        with pytest.raises(DecompressionLimitError) as raised:
            decompress(codec, bomb, limit)
        assert raised.value.error_code is ErrorCode.message_too_large


def test_zstd_that_does_not_say_its_size_is_bounded_too() -> None:
    """The Java producer streams, so its frames carry no size."""
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 24))
    assert len(decompress(Codec.ZSTD, bomb, 1 << 24)) == 1 << 24
    with pytest.raises(DecompressionLimitError):
        decompress(Codec.ZSTD, bomb, (1 << 24) - 1)


def test_snappy_that_claims_what_it_cannot_hold_raises() -> None:
    """The claim stands in the first bytes, and must not become an allocation."""
    with pytest.raises(CorruptPayloadError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x7f" + b"\0" * 20, 1 << 30)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated_payload_raises(codec: Codec) -> None:
    """Half a payload must not pass for a whole one."""
    compressed = compress(codec, PAYLOAD)
    for cut in (1, 2, 10, len(compressed) // 2, len(compressed) - 4):
        with pytest.raises(CorruptPayloadError):
            decompress(codec, compressed[:-cut], 1 << 20)
        with pytest.raises(CorruptPayloadError):
            list(decompressed_pieces(codec, compressed[:-cut], 1 << 20))


def test_zstd_of_a_frame_that_says_it_holds_nothing_is_looked_at() -> None:
    """The library takes its word for it, whatever lies there."""
    says_nothing = bytes.fromhex("28b52ffd2000610000160100010a6b65762d3000")
    with pytest.raises(KafkaError):
        decompress(Codec.ZSTD, says_nothing, 1 << 20)
    nothing = zstandard.ZstdCompressor().compress(b"")
    assert decompress(Codec.ZSTD, nothing, 1 << 20) == b""


def test_truncated_zstd_checksum_raises() -> None:
    """The library's stream ends without a word where its input does."""
    compressed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(PAYLOAD)
    assert decompress(Codec.ZSTD, compressed, 1 << 20) == PAYLOAD
    for cut in range(1, 8):
        with pytest.raises(CorruptPayloadError):
            decompress(Codec.ZSTD, compressed[:-cut], 1 << 20)


@pytest.mark.parametrize("codec", Codec)
def test_pieces_are_the_payload_and_no_more_of_a_bomb_is_made_than_the_limit(codec: Codec) -> None:
    """Whoever only counts holds a piece at a time, and never more than the limit and a piece in all."""
    payload = PAYLOAD * 8 + bytes(1 << 22)
    compressed = compress(codec, payload)
    assert b"".join(decompressed_pieces(codec, compressed, len(payload))) == payload
    pieces = decompressed_pieces(codec, compressed, 1_000_000)
    made: list[int] = []
    with pytest.raises(DecompressionLimitError):
        made.extend(len(piece) for piece in pieces)
    assert sum(made) <= 1_000_000
    assert all(size <= 128 * 1024 for size in made)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_many_small_frames_in_a_row_are_read_as_one(codec: Codec) -> None:
    """More than a decoder is given at once, so that frames end anywhere in what it is given."""
    frames = [compress(codec, b"%d;" % number) for number in range(3_000)]
    whole = b"".join(b"%d;" % number for number in range(3_000))
    assert decompress(codec, b"".join(frames), len(whole)) == whole


def outcome(read: Callable[[], bytes | memoryview]) -> bytes | ErrorCode:
    try:
        return bytes(read())
    except KafkaError as error:
        return error.error_code


@given(st.data(), st.sampled_from(sorted(WAYS)), st.lists(payloads(), min_size=1, max_size=3))
@examples(150)
def test_what_is_decompressed_is_what_a_plain_reader_finds(
    data: st.DataObject, way: str, parts: list[bytes]
) -> None:
    """Of frames in a row, damaged and cut off ones, and those whose sizes lie; in pieces and as a whole."""
    codec, compress_ = WAYS[way]
    compressed = b"".join(map(compress_, parts))
    is_damaged = data.draw(st.booleans())
    if is_damaged:
        compressed = data.draw(damaged(compressed))
    plain = read_plainly(codec, compressed)
    size = len(b"".join(parts) if plain is None else plain)
    limit = data.draw(st.sampled_from([size, 1 << 20, max(0, size - 1), size // 2, 131_072, 131_073]))
    whole = outcome(lambda: decompress(codec, memoryview(compressed), limit))
    in_pieces = outcome(lambda: b"".join(decompressed_pieces(codec, compressed, limit)))
    if plain is None:
        assert {whole, in_pieces} <= {ErrorCode.corrupt_message, ErrorCode.message_too_large}
    elif len(plain) <= limit:
        assert whole == in_pieces == plain
    else:
        assert whole is in_pieces is ErrorCode.message_too_large
    if plain is not None and not is_damaged and codec is not Codec.SNAPPY:
        assert plain == b"".join(parts)


@pytest.mark.parametrize("way", WAYS)
def test_memory_for_a_bomb_is_bounded_by_the_limit_whatever_its_frame_claims(way: str) -> None:
    """A claim must not become an allocation, nor a number of blocks."""
    codec, compress_ = WAYS[way]
    bomb = compress_(bytes(1 << 24))
    limit = 500_000
    for sent in (bomb, bomb + bomb[:100], bomb[:-5]):
        tracemalloc.start()
        try:
            assert outcome(lambda sent=sent: decompress(codec, sent, limit)) in (  # type: ignore[misc]
                ErrorCode.corrupt_message,
                ErrorCode.message_too_large,
            )
            assert tracemalloc.get_traced_memory()[1] < 2 * limit + len(sent)
        finally:
            tracemalloc.stop()


@given(st.sampled_from(COMPRESSING), st.binary(max_size=100))
@examples(50)
def test_garbage_raises_only_named_errors(codec: Codec, garbage: bytes) -> None:
    """The libraries raise a zoo of exceptions; callers see one family."""
    for payload in (garbage, compress(codec, b"abc")[:8] + garbage):
        with contextlib.suppress(KafkaError):
            decompress(codec, payload, 10_000)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unassigned_codec_is_named(number: int) -> None:
    """Kafka may assign them one day."""
    with pytest.raises(KafkaError) as raised:
        codec_of(0x10 | number)
    assert raised.value.error_code is ErrorCode.unsupported_compression_type
