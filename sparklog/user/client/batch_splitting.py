"""Splitting batches that are too large for their topic (KIP-126).

A batch refused for its size was not appended, so its parts have its sequence numbers.
"""

from typing import NamedTuple

from sparklog.protocol.records.batch import read_header, sequence_after
from sparklog.protocol.records.builder import build_batch, read_records
from sparklog.protocol.types import unless_minus_one


class BatchPart(NamedTuple):
    """A batch of some of another batch's records."""

    data: bytes
    record_count: int
    base_sequence: int | None


def halves(data: bytes, *, level: int | None = None) -> list[BatchPart]:
    """Return a batch of two or more records as two batches; `level` is its codec's.

    >>> from sparklog.protocol.records.builder import SimpleRecord
    >>> batch = build_batch([SimpleRecord(value=b"a")] * 5, base_sequence=7, producer_id=1, producer_epoch=0)
    >>> [(part.record_count, part.base_sequence) for part in halves(batch)]
    [(2, 7), (3, 9)]
    """
    header = read_header(data)
    records = [record._replace(offset=None) for record in read_records(data, header)]
    middle = len(records) // 2
    sequence = unless_minus_one(header.base_sequence)
    parts = []
    for part in (records[:middle], records[middle:]):
        batch = build_batch(
            part,
            producer_id=unless_minus_one(header.producer_id),
            producer_epoch=unless_minus_one(header.producer_epoch),
            base_sequence=sequence,
            codec=header.codec,
            level=level,
            transactional=header.is_transactional,
        )
        parts.append(BatchPart(batch, len(part), sequence))
        if sequence is not None:
            sequence = sequence_after(sequence, len(part))
    return parts
