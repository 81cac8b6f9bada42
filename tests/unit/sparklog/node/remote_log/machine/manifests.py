"""Manifests for tests."""

from dataclasses import replace
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import empty_manifest


def remote_segment(base_offset: int, end_offset: int, name: str | None = None) -> RemoteSegment:
    return RemoteSegment(
        name=name or f"segment-{base_offset}",
        base_offset=base_offset,
        end_offset=end_offset,
        record_count=end_offset - base_offset,
        size_bytes=50,
        raw_bytes=100,
        first_timestamp_ms=base_offset,
        max_timestamp_ms=end_offset,
        crc32c=0,
    )


def manifest_with(*ends: int, epochs: tuple[EpochStart, ...] = (EpochStart(0, 0),)) -> Manifest:
    """Return a manifest with segments that end there, the first of which begins at 0."""
    bases = (0, *ends)
    return replace(
        empty_manifest("orders", UUID(int=7), 3, start_offset=0, owner_epoch=1, leader_epoch=2),
        end_offset=bases[-1],
        segments=tuple(map(remote_segment, bases, ends)),
        leader_epochs=epochs,
        producers="producers",
    )
