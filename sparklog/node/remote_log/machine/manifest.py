"""The manifest of one partition: which remote segments hold its records, in order.

A record is in the tier if a segment that the manifest names has it. A manifest is immutable; a change makes
another one, which replaces it in the store by compare-and-swap, so that of two writers one sees the other.

Invariants:
- Segments are in the order of their offsets and do not overlap. Between two of them there is no record that
  readers could still see: gaps are aborted records, markers, and what compaction has removed.
- `log_start_offset` <= `end_offset`; every record in [log_start_offset, end_offset) that is below the last
  stable offset and was not compacted away is in one of the segments.
- `owner_epoch` never falls. A manifest of a higher one is another application's: this one writes no more.
- `leader_epochs` cover [log_start_offset, end_offset), by rising epochs and offsets.
"""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs


class EpochStart(NamedTuple):
    leader_epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """An immutable Parquet object with records of one partition.

    Of the object's records those in [base_offset, end_offset) count: an unclean election may have cut a
    segment without writing it again.
    """

    name: str
    """Its path below the prefix of the store."""
    base_offset: Offset
    end_offset: Offset
    """Exclusive. The records of the next one begin here or above."""
    record_count: int
    size_bytes: int
    raw_bytes: int
    """Size of its records in batches, uncompressed: what retention and reads count."""
    first_timestamp_ms: TimestampMs
    """The smallest of its records; -1 for none."""
    max_timestamp_ms: TimestampMs
    """The largest of its records; -1 for none."""
    crc32c: int
    """CRC-32C of the object's bytes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    topic: str
    topic_id: UUID
    partition: int
    owner_epoch: int
    """Owner epoch of the application that wrote the manifest."""
    leader_epoch: LeaderEpoch
    """Epoch of the leader that wrote the manifest."""
    log_start_offset: Offset
    end_offset: Offset
    """Everything below is in the tier; where a log begins again that has nothing but the tier."""
    segments: tuple[RemoteSegment, ...]
    leader_epochs: tuple[EpochStart, ...]
    producers: str | None
    """Name of the object with the producers' state at `end_offset`, in the format of Kafka's snapshots."""
    unreferenced: tuple[str, ...]
    """Objects that an earlier manifest named, to be deleted once this one is in the store."""
    written_ms: TimestampMs
