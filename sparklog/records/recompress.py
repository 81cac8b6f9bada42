"""Rewriting a batch with another codec, for topics whose `compression.type` is not `producer`.

The records themselves, offsets, timestamps and producer fields stay as they are; only the payload is
decompressed and compressed again. A leader does this after `validate_produced` and before stamping, off the
event loop: it is the one thing a broker does that costs by the byte.
"""

from sparklog.records.batch import HEADER_BYTES, BatchHeader, header_bytes, read_header
from sparklog.records.codecs import DEFAULT_DECOMPRESSED_LIMIT_BYTES, Codec, compress, decompress

__all__ = ["recompress"]

_CODEC_BITS = 0x07


def recompress(
    records: bytes | memoryview,
    header: BatchHeader,
    codec: Codec,
    level: int | None = None,
    limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
) -> tuple[bytes | memoryview, BatchHeader]:
    """Return the batch `records` with its payload in `codec`, and its new header.

    A batch that is in `codec` already comes back as it is, whatever its level, as in Kafka.

    Raises:
        KafkaError: what `decompress` raises: CORRUPT_MESSAGE, or INVALID_RECORD beyond `limit_bytes`.
    """
    if header.codec is codec:
        return records, header
    payload = decompress(header.codec, memoryview(records)[HEADER_BYTES : header.size_bytes], limit_bytes)
    compressed = compress(codec, payload, level)
    attributes = (header.attributes & ~_CODEC_BITS) | codec
    batch = header_bytes(header._replace(attributes=attributes), compressed) + compressed
    return batch, read_header(batch)
