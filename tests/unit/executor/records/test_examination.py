"""The ways in which a batch is examined, beside each other: in pieces, as a whole, and in haste."""

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.framing import check_framing
from sparklog.executor.records.walk import CostlyWalkError, RecordLimits
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import HEADER_BYTES, BatchHeader, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec, DecompressionLimitError
from tests.examples import examples
from tests.unit.sparklog.protocol.records.compressed import WAYS, damaged, read_plainly

NOW_MS: Final = 1_700_000_000_000
IN_PIECES: Final = Demands(1 << 24, 1 << 24, RecordLimits(False, 0, 2**53))
AS_A_WHOLE: Final = IN_PIECES._replace(max_decompressed_bytes=1 << 20)
IN_HASTE: Final = IN_PIECES._replace(max_decompressed_bytes=100_000, is_hasty=True)


def outcome(sent: bytes, demands: Demands) -> tuple[bytes, BatchHeader] | ErrorCode | None:
    """Return the batch that is stored, the error, or None if the examination gave up."""
    try:
        stored, header, _ = examine(sent, read_header(sent), demands)
    except CostlyWalkError:
        return None
    except KafkaError as error:
        if demands.is_hasty and isinstance(error, DecompressionLimitError):
            return None
        return error.error_code
    return bytes(stored), header


def payload_of(count: int, value_bytes: int, seed: int) -> bytes:
    chosen = random.Random(seed)
    sizes = chosen.choice([[value_bytes], [value_bytes, value_bytes + 7], range(value_bytes + 1)])
    letters = chosen.choice([b"a", b"abcdefghijklmnop", bytes(range(256))])
    records = [
        SimpleRecord(None, bytes(chosen.choices(letters, k=chosen.choice(sizes))), (), NOW_MS + index // 9)
        for index in range(count)
    ]
    return build_batch(records)[HEADER_BYTES:]


def sent_as(codec: Codec, compressed: bytes, count: int) -> bytes:
    header = read_header(build_batch([SimpleRecord(timestamp_ms=NOW_MS)]))._replace(
        attributes=codec, record_count=count, last_offset_delta=count - 1
    )
    return header_bytes(header, compressed) + compressed


@given(
    st.data(),
    st.sampled_from(sorted(WAYS)),
    st.integers(1, 1_500),
    st.sampled_from([0, 20, 70, 200]),
    st.integers(0, 2**32),
)
@examples(100)
def test_outcome_of_an_examination_is_the_same_in_each_way(
    data: st.DataObject, way: str, count: int, value_bytes: int, seed: int
) -> None:
    """Also of frames in a row, of damaged and cut off ones; only haste may give up, at too much."""
    codec, compress_ = WAYS[way]
    payload = payload_of(count, value_bytes, seed)
    at = data.draw(st.sampled_from([0, 0, len(payload) // 2]))
    parts = [payload[:at], payload[at:]] if at else [payload]
    compressed = b"".join(map(compress_, parts))
    if is_damaged := data.draw(st.booleans()):
        compressed = data.draw(damaged(compressed))
    sent = sent_as(codec, compressed, count)
    in_pieces, whole, hasty = (outcome(sent, each) for each in (IN_PIECES, AS_A_WHOLE, IN_HASTE))
    refusals = (ErrorCode.invalid_record, ErrorCode.invalid_timestamp, ErrorCode.message_too_large)
    if in_pieces in refusals:
        assert whole in refusals
        assert hasty in (*refusals, None)
    else:
        assert read_plainly(codec, compressed) == payload or is_damaged
        assert whole == in_pieces
        may_give_up = len(payload) > 100_000 or "streamed" in way or is_damaged
        assert hasty == in_pieces or (hasty is None and may_give_up)
    if not is_damaged and len(parts) == 1 and way != "lz4, linked":
        assert in_pieces not in refusals


PARTS_OF_NOTHING: Final = {
    "snappy": (16, b"\0\0\0\1\0"),
    "zstd": (0, b"\x50\x2a\x4d\x18\0\0\0\0"),
    "zstd, without its size": (6, b"\0\0\0"),
}
"""Parts that add nothing to compressed records, and how many bytes stand before the first one."""


@pytest.mark.parametrize("way", sorted(PARTS_OF_NOTHING))
def test_batch_of_very_many_parts_of_nothing_is_left_to_a_thread(way: str) -> None:
    """A megabyte of them took the event loop a third of a second, for a record of a few bytes."""
    codec, compress_ = WAYS[way]
    position, nothing = PARTS_OF_NOTHING[way]
    compressed = compress_(payload_of(1, 20, 1))
    for times, in_haste in ((100, True), (100_000, False)):
        sent = sent_as(codec, compressed[:position] + nothing * times + compressed[position:], 1)
        stored = outcome(sent, IN_PIECES)
        assert stored == (sent, read_header(sent))
        assert outcome(sent, IN_HASTE) == (stored if in_haste else None)


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"lz4, linked", "lz4, large blocks", "zstd, streamed"}))
def test_size_that_framing_tells_is_not_above_the_real_one_and_not_far_below(way: str) -> None:
    """By it a batch is left to a thread before it was decompressed in vain."""
    codec, compress_ = WAYS[way]
    for size in (1, 60_000, 131_072, 131_073, 700_000):
        payload = random.Random(3).choices(b"abcdefgh", k=size)
        likely = check_framing(codec, memoryview(compress_(bytes(payload))))
        assert likely <= size
        assert likely >= size - 131_072 or codec is Codec.SNAPPY
