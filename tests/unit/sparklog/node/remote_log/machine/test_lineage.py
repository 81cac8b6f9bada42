"""What becomes of a manifest and the log of a new leader."""

from dataclasses import replace

import pytest

from sparklog.node.remote_log.machine.lineage import Lineage, compare
from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.machine.manifest_changes import emptied
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from tests.unit.sparklog.node.remote_log.machine.manifests import manifest_with

MANIFEST = replace(
    manifest_with(10, 20, 30, epochs=(EpochStart(0, 0), EpochStart(2, 15))), log_start_offset=0
)


@pytest.mark.parametrize(
    ("log_epochs", "log_end_offset", "expected"),
    [
        # The log goes on where the manifest ends, with or without its epochs.
        ([(0, 0), (2, 15)], 30, (Lineage.CONTINUED, 30)),
        ([(0, 0), (2, 15), (3, 40)], 50, (Lineage.CONTINUED, 30)),
        ([(5, 30)], 50, (Lineage.CONTINUED, 30)),
        # A leader's own epoch, without a record, says nothing.
        ([(0, 0), (2, 15), (7, 25)], 25, (Lineage.ADOPTED, 25)),
        # Empty, shorter, older.
        ([], 0, (Lineage.ADOPTED, 0)),
        ([(0, 0)], 12, (Lineage.ADOPTED, 12)),
        ([(0, 0)], 40, (Lineage.ADOPTED, 15)),
        ([(0, 0), (1, 12)], 40, (Lineage.ADOPTED, 12)),
        # A newer history.
        ([(0, 0), (3, 12)], 14, (Lineage.DIVERGED, 12)),
        ([(0, 0), (2, 15), (3, 20)], 60, (Lineage.DIVERGED, 20)),
        ([(6, 20)], 60, (Lineage.DIVERGED, 20)),
    ],
)
def test_comparison_lets_the_newer_last_epoch_go_on(
    log_epochs: list[tuple[int, int]], log_end_offset: int, expected: tuple[Lineage, int]
) -> None:
    """No record of the tier is lost for an older or shorter log."""
    entries = [EpochEntry(*entry) for entry in log_epochs]
    assert compare(MANIFEST, entries, log_end_offset) == expected


def test_comparison_with_a_manifest_without_records_rests_on_its_end() -> None:
    """It says where the log begins."""
    manifest = emptied(MANIFEST, 40)
    assert compare(manifest, [EpochEntry(0, 0)], 50) == (Lineage.CONTINUED, 40)
    assert compare(manifest, [], 0) == (Lineage.ADOPTED, 0)
    assert compare(manifest, [EpochEntry(9, 0)], 20) == (Lineage.DIVERGED, 20)
