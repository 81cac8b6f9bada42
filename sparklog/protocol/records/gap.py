"""Batches without records, as compaction leaves them: by them readers pass offsets that have no record."""

from typing import Final

from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    header_bytes,
)
from sparklog.protocol.types import LeaderEpoch, Offset, or_minus_one

MOST_OFFSETS: Final = 2**31 - 1
"""Bound of one batch."""


def gap_batch(start: Offset, end: Offset, leader_epoch: LeaderEpoch | None) -> bytes:
    """Return a batch that covers [start, end), or the first `MOST_OFFSETS` of it.

    Consumers remember the leader epoch.
    """
    header = BatchHeader(
        base_offset=start,
        batch_length=HEADER_BYTES - LENGTH_OVERHEAD,
        partition_leader_epoch=or_minus_one(leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=min(end - start, MOST_OFFSETS) - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    return header_bytes(header, b"")
