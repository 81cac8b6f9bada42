"""The producer of a run outlives the signal that interrupts it; a count that it did not give is not zero."""

import os

import pytest

from benchmarks.probe import Probe, ProbeError
from tests.chaos.application import free_port


def test_producer_that_was_killed_has_no_count_and_is_not_in_the_group_that_a_terminal_signals() -> None:
    """A run that ended so had all records of its readers for invented: none had been written, it was said."""
    with Probe(f"127.0.0.1:{free_port()}", "t", 2) as probe:
        assert os.getpgid(probe._process.pid) != os.getpgid(0)
        probe._process.kill()
    with pytest.raises(ProbeError, match="ended with status -9 before it said how many"):
        _ = probe.produced
