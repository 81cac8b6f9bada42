"""What a cleaning is asked, and what it answers: plain values that go through a pipe as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from sparklog.storage.machine.segment_groups import SealedSegment
from sparklog.types import Offset, ProducerEpoch, ProducerId, TimestampMs


class LastBatch(NamedTuple):
    """The last batch of a producer: its last offset, or None if the log remembers only the epoch."""

    last_offset: Offset | None
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, kw_only=True)
class CleaningRequest:
    """One round over one log."""

    directory: str
    segments: list[SealedSegment]
    """All below `end_offset`, oldest first; the last may reach above it."""
    segments_end: Offset
    """Where the last of them ends."""
    transaction_indexes: list[Offset]
    """The base offsets of all segments of the log that may have aborted transactions."""
    first_dirty_offset: Offset
    end_offset: Offset
    """Nothing from here on is cleaned."""
    producers: dict[ProducerId, LastBatch]
    now_ms: TimestampMs
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    max_bytes_a_second: float | None
    window_bytes: int
    """How much of the log is looked at at a time."""
    max_decompressed_bytes: int
    """To how much the records of one batch may expand."""

    def encode(self) -> bytes:
        """Return it as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Return what `encode` wrote."""
        values: dict[str, Any] = json.loads(line)
        values["segments"] = [SealedSegment(*segment) for segment in values["segments"]]
        values["producers"] = {int(key): LastBatch(*last) for key, last in values["producers"].items()}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class CleanedGroup:
    """A `.cleaned` segment that is on the disk, and those it stands for."""

    base_offset: Offset
    sources: list[Offset]
    """Their base offsets."""


@dataclass(frozen=True, kw_only=True)
class CleaningOutcome:
    """What a round came to."""

    cleaned_up_to: Offset
    """Exclusive; below the request's end if the map was too small, for another round."""
    groups: list[CleanedGroup]
    bytes_read: int
    bytes_written: int
    keys: int

    def encode(self) -> bytes:
        """Return it as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, values: dict[str, Any]) -> Self:
        """Return what the line of `encode` says."""
        groups = [CleanedGroup(**group) for group in values["groups"]]
        return cls(**{**values, "groups": groups})
