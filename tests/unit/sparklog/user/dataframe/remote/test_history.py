"""What a task reads from the store is a part of what the manifest covers, cut exactly."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import empty_manifest
from sparklog.user.dataframe.remote.history import RemotePiece, history_of


def segment(name: str, base_offset: int, end_offset: int) -> RemoteSegment:
    return RemoteSegment(name, base_offset, end_offset, 1, 100, 100, 0, 0, 0)


@pytest.fixture
def manifest() -> Manifest:
    """A log that begins inside its first segment, and has a gap before its last."""
    empty = empty_manifest("t", UUID(int=1), 0, start_offset=5, owner_epoch=2, leader_epoch=7)
    segments = segment("a", 0, 10), segment("b", 10, 20), segment("c", 25, 30)
    return replace(empty, end_offset=40, segments=segments)


@pytest.mark.parametrize(
    ("start", "end", "seam", "pieces"),
    [
        (5, 40, 40, [("a", 5, 10), ("b", 10, 20), ("c", 25, 30)]),
        (7, 12, 12, [("a", 7, 10), ("b", 10, 12)]),
        (20, 24, 24, []),
        (20, 26, 26, [("c", 25, 26)]),
        (12, 99, 40, [("b", 12, 20), ("c", 25, 30)]),
    ],
)
def test_history_within_a_range_has_the_segments_cut_at_its_ends(
    manifest: Manifest, start: int, end: int, seam: int, pieces: list[tuple[str, int, int]]
) -> None:
    """A gap has no records; behind the seam brokers go on."""
    found = history_of(manifest).within(start, end)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (start, seam)
    assert found.pieces == tuple(RemotePiece(name, 100, 1, first, last) for name, first, last in pieces)


@pytest.mark.parametrize(("start", "end"), [(4, 30), (40, 50), (10, 10)])
def test_history_that_does_not_have_the_start_of_a_range_is_not_used(
    manifest: Manifest, start: int, end: int
) -> None:
    """Brokers say what became of records below the log's start, and have those behind the seam."""
    assert history_of(manifest).within(start, end) is None
