"""Rewriting a batch with another codec, for topics whose `compression.type` is not `producer`.

The records themselves, offsets, timestamps and producer fields stay as they are; only the payload is
compressed again. A leader does this after `validate_produced` and before stamping, off the event loop: it is
the one thing a broker does that costs by the byte.
"""

from sparklog.protocol.records.batch import (
    CODEC_BITS,
    DELETE_HORIZON_BIT,
    BatchHeader,
    header_bytes,
    read_header,
)
from sparklog.protocol.records.codecs import Codec, compress


def recompress(
    payload: bytes | memoryview, header: BatchHeader, codec: Codec, level: int | None = None
) -> tuple[bytes, BatchHeader]:
    """Return the batch of `header` with its decompressed `payload` in `codec`, and its new header."""
    compressed = compress(codec, payload, level)
    attributes = (header.attributes & ~(CODEC_BITS | DELETE_HORIZON_BIT)) | codec  # the cleaner's alone
    batch = header_bytes(header._replace(attributes=attributes), compressed) + compressed
    return batch, read_header(batch)
