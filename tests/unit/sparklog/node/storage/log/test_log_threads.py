"""A log that several threads use at once: what they are told was true while they asked."""

from pathlib import Path

import pytest

from tests.unit.sparklog.node.storage.log_threads import LogUnderThreads

STEPS = 120
ENDINGS = ("clean", "killed", "deletion", "disk")


@pytest.mark.parametrize("seed", range(4))
def test_log_changed_by_one_thread_answers_the_others_with_what_was_true_meanwhile(
    tmp_path: Path, seed: int
) -> None:
    """A look-up that meets a segment on its way out must not take that for a broken disk, or lie."""
    LogUnderThreads(tmp_path, seed, ENDINGS[seed % len(ENDINGS)]).run(STEPS)
