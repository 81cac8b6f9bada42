"""Rewriting a batch with another codec, for topics whose `compression.type` is not `producer`."""

from sparklog.records.batch import BatchHeader
from sparklog.records.codecs import Codec

__all__ = ["recompress"]


def recompress(
    records: bytes | memoryview, header: BatchHeader, codec: Codec, level: int | None = None
) -> tuple[bytes, BatchHeader]:
    """Return the batch with its payload in `codec`, and its new header; the same bytes if it is so already."""
    raise NotImplementedError
