"""The short form of `make chaos`: one of each common fault, at random times, upon one real application."""

from pathlib import Path

import pytest

from tests.chaos.observations import RANDOM
from tests.chaos.reaper import processes_of
from tests.chaos.run import Run

SEED = 20
FREEZE_S = 4.0
"""Longer than a lease."""


def run_of(directory: Path) -> Run:
    """Return a run with short waits."""
    return Run(
        directory,
        RANDOM,
        SEED,
        with_disks=False,
        freeze_s=FREEZE_S,
        broken_disk_s=0.0,
        longest_pause_s=0.5,
    )


@pytest.mark.timeout(600)
def test_cluster_under_kills_freezes_and_stops_keeps_every_acknowledged_record(tmp_path: Path) -> None:
    """With real processes, sockets and files, nothing promised is lost, doubled, moved or invented."""
    run = run_of(tmp_path / "chaos-brokers")
    with run:
        for fault in ("worker", "rolling", "freeze", "executor"):
            run.observe(fault)
    assert run.session is not None
    assert run.session.complaints == ()
    assert run.session.verdict.is_clean, run.session.verdict
    assert processes_of(run.mark) == []


@pytest.mark.timeout(600)
def test_cluster_whose_driver_is_killed_is_the_same_cluster_when_it_is_started_again(tmp_path: Path) -> None:
    """A supervisor is all that the driver needs: topics, records and producers' sequences are still there."""
    run = run_of(tmp_path / "chaos-drivers")
    with run:
        for fault in ("driver-jvm", "driver-python"):
            run.observe(fault)
    assert run.session is not None
    assert run.session.complaints == ()
    assert run.session.verdict.is_clean, run.session.verdict
    assert processes_of(run.mark) == []
