"""Arrow columns to record batches, without a Python object a record."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from sparklog.records.codecs import Codec
from sparklog.types import TimestampMs

__all__ = ["EncodedBatch", "encode_batches"]

ArrowColumn = pa.Array | pa.ChunkedArray


class EncodedBatch(NamedTuple):
    """One batch, ready to be sent."""

    data: bytes
    record_count: int
    base_sequence: int


def encode_batches(
    *,
    key: ArrowColumn | None,
    value: ArrowColumn,
    headers: ArrowColumn | None = None,
    timestamp: ArrowColumn | None = None,
    default_timestamp_ms: TimestampMs,
    batch_size_bytes: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    max_request_bytes: int = 1024 * 1024,
) -> Iterator[EncodedBatch]:
    """Yield batches of the columns' rows in order."""
    raise NotImplementedError
