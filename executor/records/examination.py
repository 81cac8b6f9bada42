"""What a leader must look into a batch for, before it gives the records offsets: how many there really are.

A header's word is good for nothing there. Two billion records in a compressed batch of a hundred bytes would
move the log's end by as much. So a compressed batch is decompressed, piece by piece, and its records are
counted. Topics may ask for more: another codec (`compression.type`), keys on every record (compaction),
timestamps that are not too old (message.timestamp.before.max.ms); then its records are held as a whole.

All of it costs by the byte, and a few kilobytes may stand for gigabytes: the caller does it beside its event
loop, after `validate_produced`, and appends what comes back only if it still leads in the same leader epoch.
"""

from typing import NamedTuple

from executor.records.counting import check_record_count
from executor.records.recompress import recompress
from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import HEADER_BYTES, BatchHeader
from sparklog.records.codecs import Codec, decompress, decompressed_pieces
from sparklog.types import TimestampMs

__all__ = ["Demands", "examine"]


class Demands(NamedTuple):
    """What is asked of the records of a batch, beside their number."""

    max_decompressed_bytes: int
    """To how much the records of one batch may expand (message.max.decompressed.bytes)."""
    max_message_bytes: int
    codec: Codec | None = None
    """What they are to be compressed with; None leaves it to the producer."""
    codec_level: int | None = None
    require_keys: bool = False
    earliest_ms: TimestampMs | None = None


def examine(
    records: bytes | memoryview, header: BatchHeader, demands: Demands
) -> tuple[bytes | memoryview, BatchHeader]:
    """Return the batch as it is to be stored, and its header.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the codec cannot read it; MESSAGE_TOO_LARGE, it expands to too much, or
            is too large in its new codec; INVALID_RECORD and INVALID_TIMESTAMP, as `check_record_count` and
            `inspect_records` say.
    """
    stored_as = header.codec if demands.codec is None else demands.codec
    inspects = demands.require_keys or demands.earliest_ms is not None
    compressed = memoryview(records)[HEADER_BYTES:]
    limit_bytes = demands.max_decompressed_bytes
    if stored_as is header.codec and not inspects:
        check_record_count(decompressed_pieces(header.codec, compressed, limit_bytes), header.record_count)
        return records, header
    payload = decompress(header.codec, compressed, limit_bytes)
    check_record_count((payload,), header.record_count)
    if inspects:
        # Imported with the first topic that demands it: it brings numpy and Arrow into the broker.
        from executor.records.inspection import inspect_records

        inspect_records(payload, header, require_keys=demands.require_keys, earliest_ms=demands.earliest_ms)
    if stored_as is header.codec:
        return records, header
    result, result_header = recompress(payload, header, stored_as, demands.codec_level)
    if len(result) > demands.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"batch of {len(result)} bytes after recompression exceeds max.message.bytes, which is "
            f"{demands.max_message_bytes}",
        )
    return result, result_header
