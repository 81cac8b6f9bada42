"""Each planted bug of a table's committer is found; see docs/simulation.md."""

import pytest

from tests.simulation.tables.planted import PLANTED
from tests.simulation.tables.world import run_seed

SEEDS_TRIED = 24
FOUND = {
    "deleted-under-readers": (0, "FilesAreThere"),
    "branches-expire": (4, "RefsKeepTheirs"),
    "deleted-under-tags": (0, "FilesAreThere"),
    "deletions-wait-for-tags": (0, "NothingIsLeft"),
    "deletions-wait-for-branches": (12, "NothingIsLeft"),
    "others-files-collected": (0, "OthersFilesStay"),
    "expired-by-their-making": (0, "ReadersKeepTheirs"),
    "others-ignored": (3, "OthersAreRespected"),
    "higher-owner-ignored": (0, "DeposedChangesNothing"),
    "files-never-read-again": (0, "CommitsFit"),
    "comparison-kept": (1, "CommitsFit"),
    "manifests-compared-once": (1, "TableIsTheTopic"),
    "groups-committed-twice": (0, "CommitsFit"),
    "parts-taken-whole": (0, "OneDayEach"),
    "log-start-ignored": (1, "TableIsTheTopic"),
    "overlaps-apart": (0, "OnceInEachSnapshot"),
    "rows-not-kept": (0, "KeptForever"),
    "young-orphans-collected": (3, "NamedIsNeverDeleted"),
    "deleted-topic-forgotten": (1, "DeletionEnds"),
}
"""The seeds that find them first, and the invariants that must."""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTED)
def test_simulated_table_with_a_planted_bug_finds_it(name: str) -> None:
    """A simulation that finds nothing in a broken committer says nothing of a whole one."""
    seed, invariant = FOUND[name]
    with PLANTED[name].planted():
        # A change of a machine gives seeds another meaning, so others are tried as well.
        violations = (run_seed(each).violation for each in (seed, *range(SEEDS_TRIED)))
        assert invariant in (each.invariant for each in violations if each is not None)
