"""Requests and outcomes of cleanings: plain values that go through a pipe as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from sparklog.node.storage.machine.segment_groups import SealedSegment
from sparklog.protocol.types import Offset, ProducerEpoch, ProducerId, TimestampMs


class LastBatch(NamedTuple):
    """The last batch of a producer: its last offset, or None if the log remembers only the epoch."""

    last_offset: Offset | None
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, kw_only=True)
class CleaningRequest:
    directory: str
    segments: list[SealedSegment]
    """All below `end_offset`, oldest first; the last may reach above it."""
    segments_end: Offset
    transaction_indexes: list[Offset]
    """Base offsets of all segments of the log that may have aborted transactions."""
    first_dirty_offset: Offset
    end_offset: Offset
    """Exclusive end of the part to clean."""
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
    """Bytes of the log that are examined at a time."""
    max_decompressed_bytes: int
    """Limit for the decompressed records of one batch."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        values: dict[str, Any] = json.loads(line)
        values["segments"] = [SealedSegment(*segment) for segment in values["segments"]]
        values["producers"] = {int(key): LastBatch(*last) for key, last in values["producers"].items()}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class CleanedGroup:
    base_offset: Offset
    sources: list[Offset]
    """Base offsets of the replaced segments."""


@dataclass(frozen=True, kw_only=True)
class CleaningOutcome:
    cleaned_up_to: Offset
    """Exclusive; below the request's end if the map was too small, for another round."""
    groups: list[CleanedGroup]
    bytes_read: int
    bytes_written: int
    keys: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, values: dict[str, Any]) -> Self:
        """Build the outcome from the parsed line of `encode`."""
        groups = [CleanedGroup(**group) for group in values["groups"]]
        return cls(**{**values, "groups": groups})
