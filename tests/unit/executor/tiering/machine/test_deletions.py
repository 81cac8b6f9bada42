"""Objects that a manifest has given up: deleted by the leader, or left to the driver for a table."""

from uuid import UUID

from sparklog.executor.tiering.machine.deletions import Deletions
from sparklog.executor.tiering.machine.events import DeleteObjects
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.names import producers_file_name, segment_file_name

TOPIC_ID = UUID(int=1)
LEADER_EPOCH = 3
GIVEN_UP = f"segments/t-{TOPIC_ID}/0/{segment_file_name(0, 2, 'a-1')}"
ORPHAN = f"segments/t-{TOPIC_ID}/0/{segment_file_name(5, 2, 'b-1')}"
PRODUCERS = f"producers/{TOPIC_ID}/0/{producers_file_name(5, 2, 'a-2')}"


def manifest(*unreferenced: str) -> Manifest:
    return Manifest("t", TOPIC_ID, 0, 1, LEADER_EPOCH, 0, 10, (), (), None, unreferenced, 0)


def deletions(*, keeps_segments: bool) -> Deletions:
    deletions = Deletions(LEADER_EPOCH)
    deletions.keeps_segments = keeps_segments
    deletions.confirmed(manifest(GIVEN_UP, PRODUCERS))
    return deletions


def test_leader_of_a_table_deletes_no_segment_that_a_manifest_had() -> None:
    """A snapshot of the table may have it, so only the states of producers go at once."""
    assert deletions(keeps_segments=False).next() == DeleteObjects((GIVEN_UP, PRODUCERS))
    assert deletions(keeps_segments=True).next() == DeleteObjects((PRODUCERS,))


def test_leader_of_a_table_deletes_no_orphan_segment() -> None:
    """The leader cannot tell an orphan from a file that a table keeps for ever."""
    kept = deletions(keeps_segments=True)
    kept.listed((GIVEN_UP, ORPHAN, PRODUCERS), manifest(GIVEN_UP, PRODUCERS), ())
    assert kept.next() == DeleteObjects((PRODUCERS,))


def test_manifest_forgets_a_segment_once_it_is_not_listed() -> None:
    """The driver has deleted it; names of objects that are gone would make manifests grow for ever."""
    kept = deletions(keeps_segments=True)
    kept.listed((GIVEN_UP,), manifest(GIVEN_UP, PRODUCERS), ())
    assert kept.deleted == set()
    kept.listed((), manifest(GIVEN_UP, PRODUCERS), ())
    assert kept.deleted == {GIVEN_UP}


def test_manifest_forgets_a_segment_that_the_table_keeps() -> None:
    """A table that keeps its rows for ever has it, and manifests would name all segments there ever were."""
    kept = deletions(keeps_segments=True)
    for count, deleted in enumerate((set(), {GIVEN_UP})):
        kept.listed((GIVEN_UP,), manifest(GIVEN_UP, PRODUCERS), ())
        assert kept.deleted == deleted, f"after list {count}"
    kept.confirmed(manifest())
    assert kept.next() == DeleteObjects((PRODUCERS,))
    kept.done((PRODUCERS,))
    kept.keeps_segments = False
    kept.listed((GIVEN_UP,), manifest(), ())
    assert kept.next() == DeleteObjects((GIVEN_UP,))


def test_segments_given_up_for_a_table_go_once_the_topic_is_no_table() -> None:
    """They are in the manifest still, so nothing is left behind."""
    kept = deletions(keeps_segments=True)
    kept.keeps_segments = False
    assert kept.next() == DeleteObjects((GIVEN_UP, PRODUCERS))


def test_objects_that_no_manifest_had_go_also_with_a_table() -> None:
    """A copy that was given up before its swap is in no table."""
    kept = deletions(keeps_segments=True)
    kept.give_up([ORPHAN])
    assert kept.next() == DeleteObjects((PRODUCERS, ORPHAN))
