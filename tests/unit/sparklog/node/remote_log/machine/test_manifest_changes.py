"""Each change of a manifest keeps its invariants, and leaves no object behind that it does not name."""

from dataclasses import replace

from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.machine.manifest_changes import (
    appended,
    cut,
    emptied,
    replaced,
    started_at,
    with_deleted,
)
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from tests.unit.sparklog.node.remote_log.machine.manifests import manifest_with, remote_segment


def test_append_adds_the_epochs_of_its_range_and_gives_up_the_producers_before() -> None:
    """A log that begins with the tier alone needs the epochs, and the producers as of the end."""
    manifest = manifest_with(10)
    log_epochs = [EpochEntry(0, 0), EpochEntry(2, 12), EpochEntry(3, 20), EpochEntry(4, 31)]
    after = appended(manifest, 30, remote_segment(10, 30), "new", log_epochs)
    assert after.leader_epochs == (EpochStart(0, 0), EpochStart(2, 12), EpochStart(3, 20))
    assert (after.end_offset, after.producers, after.unreferenced) == (30, "new", ("producers",))


def test_append_to_an_empty_manifest_begins_its_epochs_at_its_start() -> None:
    """The epoch began below what the tier has."""
    manifest = emptied(manifest_with(10), 15)
    after = appended(manifest, 30, remote_segment(15, 30), None, [EpochEntry(0, 0), EpochEntry(2, 12)])
    assert after.leader_epochs == (EpochStart(2, 15),)


def test_replacement_of_segments_that_changed_meanwhile_is_none() -> None:
    """A merge that ended after retention has deleted its first segment does not bring that back."""
    manifest = manifest_with(10, 20, 30)
    merged = remote_segment(0, 20, "merged")
    after = replaced(manifest, manifest.segments[:2], merged)
    assert after is not None
    assert after.segments == (merged, manifest.segments[2])
    assert after.unreferenced == ("segment-0", "segment-10")
    assert replaced(started_at(manifest, 10), manifest.segments[:2], merged) is None
    assert replaced(cut(manifest, 15), manifest.segments[:2], merged) is None


def test_log_start_drops_whole_segments_and_raises_the_first_epoch() -> None:
    """A segment stays while it has a record that readers may see."""
    manifest = manifest_with(10, 20, 30, epochs=(EpochStart(0, 0), EpochStart(1, 5)))
    after = started_at(manifest, 15)
    assert [segment.base_offset for segment in after.segments] == [10, 20]
    assert after.leader_epochs == (EpochStart(1, 15),)
    assert (after.producers, after.unreferenced) == ("producers", ("segment-0",))
    assert started_at(after, 12) is after


def test_log_start_above_the_end_moves_the_end() -> None:
    """All is deleted, also what was never copied: the log goes on behind it after a loss of all disks."""
    after = started_at(manifest_with(10, 20), 50)
    assert (after.log_start_offset, after.end_offset, after.segments, after.leader_epochs) == (50, 50, (), ())
    assert after.unreferenced == ("segment-0", "segment-10", "producers")


def test_cut_makes_the_window_of_the_last_segment_smaller() -> None:
    """Its object stays; the records above the window are another history's."""
    manifest = manifest_with(10, 20, 30, epochs=(EpochStart(0, 0), EpochStart(1, 15)))
    after = cut(manifest, 15)
    assert after.segments == (manifest.segments[0], replace(manifest.segments[1], end_offset=15))
    assert (after.end_offset, after.leader_epochs, after.producers) == (15, (EpochStart(0, 0),), None)
    assert after.unreferenced == ("segment-20", "producers")
    assert cut(manifest, 30) is manifest


def test_deleted_objects_are_unreferenced_no_more() -> None:
    """The list stays short."""
    manifest = replace(manifest_with(10), unreferenced=("a", "b"))
    assert with_deleted(manifest, ["a"]).unreferenced == ("b",)
    assert with_deleted(manifest, ["c"]) is manifest
