"""A broker that is stopped and not continued is ended; one that is merely slow is not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.executor.process.watchdog import is_stopped
from tests.cluster import wait_for

REPOSITORY = Path(__file__).parents[2]
LIMIT_MS = 400
WATCHED = f"""
import sys, time
from sparklog.executor.process.watched import watched

with watched({LIMIT_MS}):
    print("lives", flush=True)
    if sys.argv[1] == "blocked":
        time.sleep({4 * LIMIT_MS / 1000})
        print("still lives", flush=True)
    if sys.argv[1] != "leaves":
        time.sleep(60)
"""


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    """A process with a watchdog."""
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, request.param], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "lives\n"
    yield process
    process.kill()
    process.wait()


def watchdogs(process_id: int) -> list[int]:
    """Return the processes whose parent it is."""
    return [
        int(child)
        for task in Path(f"/proc/{process_id}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


@pytest.mark.parametrize("watched", ["goes on"], indirect=True)
def test_watchdog_of_a_stopped_process_kills_it_and_ends(watched: "subprocess.Popen[str]") -> None:
    """Its connections end with it, so its clients look for the new leader at once."""
    (child,) = watchdogs(watched.pid)
    watched.send_signal(signal.SIGSTOP)
    assert watched.wait(10) == -signal.SIGKILL
    wait_for(lambda: not Path(f"/proc/{child}").exists(), "the watchdog has ended")


@pytest.mark.parametrize("watched", ["blocked"], indirect=True)
def test_watchdog_of_a_process_that_is_slow_leaves_it_alone(watched: "subprocess.Popen[str]") -> None:
    """A broker that waits for a disk, or for its turn, comes back by itself; killed, it has to recover."""
    assert watched.stdout is not None
    assert watched.stdout.readline() == "still lives\n"


@pytest.mark.parametrize("watched", ["leaves"], indirect=True)
def test_watchdog_of_a_process_that_leaves_ends_before_it(watched: "subprocess.Popen[str]") -> None:
    """Nothing may stay behind in an executor."""
    assert watched.wait(10) == 0


def test_stopped_process_is_told_from_a_running_one() -> None:
    """The kernel's word decides, and a name like `a) T` must not confuse it."""
    assert not is_stopped(os.getpid())
