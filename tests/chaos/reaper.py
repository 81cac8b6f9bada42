"""Ends whatever a run has started, once the run itself is gone, however that happened.

Faults leave processes behind by design: stopped ones, orphans, a driver that a supervisor would start again.
All of them inherit one environment variable, and this process, started first, kills those that have it as
soon as its standard input ends; and then unmounts the run's disks.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

MARK: Final = "SPARKLOG_CHAOS_RUN"
"""The environment variable; its value names the run."""
QUIET_S: Final = 0.5
"""How long none may be there, since one that is killed may have been starting another."""
POLL_S: Final = 0.05
TIMEOUT_S: Final = 30.0


class Reaper:
    """The process that outlives the run, from the run's side."""

    def __init__(self, run: str, disks: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.reaper", run, str(disks)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Return when nothing of the run is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)


def processes_of(run: str) -> list[int]:
    """Return the processes of a run that are not dead."""
    marked = f"{MARK}={run}".encode()
    return [process for process in psutil.pids() if _has(process, marked)]


def _has(process: int, marked: bytes) -> bool:
    if process == os.getpid():
        return False
    try:
        # A zombie's environment is empty.
        return marked in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


def _end(run: str) -> None:
    quiet_since_s = time.monotonic()
    while time.monotonic() - quiet_since_s < QUIET_S:
        for process in processes_of(run):
            quiet_since_s = time.monotonic()
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)


def _unmount(disks: Iterable[Path]) -> None:
    for disk in disks:
        if disk.is_mount():
            subprocess.run(["umount", "--lazy", str(disk)], check=False)


def main(arguments: Sequence[str]) -> None:
    """Wait for the run to be gone, then clear up after it."""
    run, disks = arguments
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.read()
    _end(run)
    _unmount(Path(disks).glob("broker-*"))


if __name__ == "__main__":
    main(sys.argv[1:])
