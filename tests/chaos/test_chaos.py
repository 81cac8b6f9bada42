"""The short form of `make chaos`: one of each common fault, at random times, upon one real application."""

from pathlib import Path
from typing import Final

import pytest

from tests.chaos.observations import RANDOM
from tests.chaos.reaper import processes_of
from tests.chaos.run import Run

SEED: Final = 20
FREEZE_S: Final = 4.0
"""Longer than a lease."""
RECORD_INTERVAL_S: Final = 0.02
"""No times are measured here, and each record costs brokers and clients computing time."""
FAULTS: Final = ("worker", "rolling", "controller", "freeze", "executor", "driver-python")
"""The driver's JVM is killed in `tests/spark/test_standalone.py`, under Spark's own supervision."""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_cluster_under_kills_freezes_and_stops_keeps_every_acknowledged_record(tmp_path: Path) -> None:
    """With real processes, sockets and files, nothing promised is lost, doubled, moved or invented.

    A supervisor is all that the driver needs: after it was killed, topics, records and producers' sequences
    are still there, and what befell the brokers before.
    """
    run = Run(
        tmp_path / "chaos",
        RANDOM,
        SEED,
        with_disks=False,
        freeze_s=FREEZE_S,
        broken_disk_s=0.0,
        longest_pause_s=0.5,
        record_interval_s=RECORD_INTERVAL_S,
    )
    with run:
        for fault in FAULTS:
            run.observe(fault)
    assert run.session is not None
    assert run.session.complaints == ()
    assert run.session.verdict.is_clean, run.session.verdict
    assert processes_of(run.mark) == []
