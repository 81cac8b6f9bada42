"""Record batches to Arrow columns, without a Python object a record."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparklog.types import Offset

__all__ = ["decode_batches"]


def decode_batches(
    buffer: bytes | memoryview,
    *,
    columns: Sequence[str],
    topic: str,
    partition: int,
    start_offset: Offset = 0,
    end_offset: Offset | None = None,
    check_crc: bool = True,
    max_rows: int = 131_072,
    max_bytes: int = 64 * 1024 * 1024,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of [start_offset, end_offset) in `buffer` as Arrow record batches."""
    raise NotImplementedError
