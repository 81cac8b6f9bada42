"""The examination of a batch by the leader before it assigns offsets: all fields that readers go by.

A header's word is good for nothing there. Two billion records in a compressed batch of a hundred bytes would
move the log's end by as much, and a length that lies stops each reader. So the leader walks over the records
(`walk`), as Kafka's LogValidator does, and a compressed batch is decompressed for it, piece by piece. The
header gets the latest timestamp of the records, regardless of the producer's. Topics may ask for more:
another codec (`compression.type`), keys on every record (compaction).

All of it costs by the byte, and a few kilobytes may stand for gigabytes: the caller does much of it beside
the loop, after `validate_produced`, and appends what comes back only if it still leads in the same leader
epoch.
"""

from typing import NamedTuple

from sparklog.executor.records.framing import MANY_BLOCKS, NO_BOUND, check_framing
from sparklog.executor.records.streamed import walk_pieces
from sparklog.executor.records.walk import CostlyWalkError, RecordLimits, RecordWalk
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    CODEC_BITS,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    header_bytes,
    read_header,
)
from sparklog.protocol.records.codecs import (
    Codec,
    CorruptPayloadError,
    codec_of,
    compress,
    decompress,
    decompressed_pieces,
)


def recompress(
    payload: bytes | memoryview, header: BatchHeader, codec: Codec, level: int | None = None
) -> tuple[bytes, BatchHeader]:
    """Return the batch of `header` with its decompressed `payload` in `codec`, and its new header.

    Records, offsets, timestamps and producer fields stay as they are. A leader does this before stamping, off
    the event loop: its cost is by the byte.
    """
    compressed = compress(codec, payload, level)
    attributes = (header.attributes & ~(CODEC_BITS | DELETE_HORIZON_BIT)) | codec  # the cleaner's alone
    batch = header_bytes(header._replace(attributes=attributes), compressed) + compressed
    return batch, read_header(batch)


_HELD_BYTES = 1024 * 1024
"""Records that can't expand to more are decompressed as a whole."""


class Demands(NamedTuple):
    """The demands on a batch beyond being readable."""

    max_decompressed_bytes: int
    """Limit of a batch's records after decompression, in bytes (message.max.decompressed.bytes)."""
    max_message_bytes: int
    limits: RecordLimits = RecordLimits()
    is_hasty: bool = False
    """Whether to give up where it takes long (`CostlyWalkError`)."""
    codec: Codec | None = None
    """The codec of the stored batch; None keeps the producer's."""
    codec_level: int | None = None


class Examined(NamedTuple):
    """A good batch in the form in which it is stored."""

    records: bytes | memoryview
    header: BatchHeader
    expanded_bytes: int
    """The size of records that were decompressed as a whole, 0 of others."""


def examine(records: bytes | memoryview, header: BatchHeader, demands: Demands) -> Examined:
    """Return the batch in the form in which it is stored.

    Raises:
        KafkaError: INVALID_RECORD, what is compressed cannot be read by all clients, or the records by none;
            MESSAGE_TOO_LARGE, it expands to too much, or is too large in its new codec.
        CostlyWalkError: it was to be hasty, and would take long, or is likely to expand to too much.
        RecordsRefusedError: INVALID_RECORD or INVALID_TIMESTAMP, as `RecordWalk.finish` says.
    """
    codec = codec_of(header.attributes)
    stored_as = codec if demands.codec is None else demands.codec
    walk = RecordWalk(header, demands.limits, is_hasty=demands.is_hasty)
    payload = memoryview(records)[HEADER_BYTES:]
    try:
        if codec is Codec.NONE:
            whole: bytes | memoryview | None = payload
        else:
            likely_bytes = check_framing(codec, payload, MANY_BLOCKS if demands.is_hasty else NO_BOUND)
            limit_bytes = demands.max_decompressed_bytes
            if demands.is_hasty and likely_bytes > limit_bytes:
                raise CostlyWalkError
            if stored_as is codec and limit_bytes > _HELD_BYTES:
                whole = None
                pieces = decompressed_pieces(codec, payload, limit_bytes, one_member=True)
                walk_pieces(walk, pieces)
            else:
                whole = decompress(codec, payload, limit_bytes, one_member=True)
    except CorruptPayloadError as error:
        # Of a batch that is corrupt a producer would send the same bytes again; these are as it made them.
        raise KafkaError(ErrorCode.invalid_record, error.message) from error
    expanded_bytes = 0
    if whole is not None:
        data = bytes(whole)
        expanded_bytes = 0 if codec is Codec.NONE else len(data)
        if walk.take(data) != len(data):
            raise KafkaError(ErrorCode.invalid_record, "the batch ends within a record")
    walk.finish()
    stored_header = header
    if demands.limits.earliest_ms is not None and header.max_timestamp != walk.max_timestamp:
        stored_header = header._replace(max_timestamp=walk.max_timestamp)
    if stored_as is not codec:
        assert whole is not None, "what is compressed again was decompressed as a whole"
        result, result_header = recompress(whole, stored_header, stored_as, demands.codec_level)
        if len(result) > demands.max_message_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"batch of {len(result)} bytes after recompression exceeds max.message.bytes, which is "
                f"{demands.max_message_bytes}",
            )
        return Examined(result, result_header, expanded_bytes)
    if stored_header is header:
        return Examined(records, header, expanded_bytes)
    head = header_bytes(stored_header, payload)
    return Examined(b"".join((head, payload)), read_header(head), expanded_bytes)
