"""A cluster beside far more busy processes than its host has processors, for as long as `--minutes` says.

Nothing is killed. No broker's process may end, no lease run out, no broker be fenced, and the run's producer
and reader see no error: they are slow, and that is all. Brokers and driver run with Python's
faulthandler, so that a process that crashes leaves its stacks in its log.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from tests.chaos.reaper import MARK
from tests.chaos.scene import Scene, Struck

BUSY_PER_PROCESSOR: Final = 20
CRASHED: Final = "Fatal Python error"
LEASE_OUT: Final = "The lease has run out"
FENCED: Final = "is fenced: "
LOOK_S: Final = 1.0


class StarvationError(Exception):
    """What starvation did to the cluster beyond making it slow."""


def starve(scene: Scene) -> Struck:
    """Keep every processor busy, and count what that does to the brokers.

    Raises:
        StarvationError: a process of a broker ended, or a lease ran out, or a broker was fenced.
    """
    processes, _ = scene.brokers()
    logs = _logs(scene)
    before = {path: path.stat().st_size for path in logs}
    ended: set[int] = set()
    deadline_s = time.monotonic() + 60 * scene.minutes
    with _busy(BUSY_PER_PROCESSOR * (os.cpu_count() or 1), scene) as count:
        while time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
            ended |= {broker for broker, process in processes.items() if not process.is_running()}
    over_s = time.monotonic()
    counts = _counted(before)
    seen = (
        f"{len(ended)} processes ended, {counts[CRASHED]} of a crash; {counts[LEASE_OUT]} leases ran out; "
        f"{counts[FENCED]} brokers fenced"
    )
    description = f"{count} busy processes for {scene.minutes:g} minutes: {seen}"
    if ended or any(counts.values()):
        raise StarvationError(description)
    return Struck(description, frozenset(processes), False, over_s)


@contextmanager
def _busy(count: int, scene: Scene) -> Iterator[int]:
    """Run so many processes that do nothing but run; they end with this one, or with the run's reaper."""
    environment = {**os.environ, MARK: scene.application.run}
    command = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    running = [subprocess.Popen(command, env=environment) for _ in range(count)]
    try:
        yield count
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def _logs(scene: Scene) -> list[Path]:
    executors: list[psutil.Process] = scene.application.executors()
    return [scene.application.log_path, *(Path(executor.cwd()) / "stderr" for executor in executors)]


def _counted(before: Mapping[Path, int]) -> dict[str, int]:
    """Return how many lines tell of each, in what was logged since."""
    counts = dict.fromkeys((CRASHED, LEASE_OUT, FENCED), 0)
    for path, size in before.items():
        with path.open("rb") as log:
            log.seek(size)
            text = log.read().decode(errors="replace")
        for told in counts:
            counts[told] += text.count(told)
    return counts
