"""A test run that is killed leaves no process behind, which would take ports, memory and time of the next."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.cluster import wait_for

REPOSITORY: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 30
RUN: Final = """
import sys
from pathlib import Path
from tests.cluster import LocalCluster

with LocalCluster(2, directory=Path(sys.argv[1])):
    print("up", flush=True)
    sys.stdin.read()
"""


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.long
def test_brokers_of_a_killed_test_run_end_and_so_do_its_other_processes(tmp_path: Path) -> None:
    """The server that forks brokers sees the end of the run only when no broker is there any more."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
        processes = psutil.Process(run.pid).children(recursive=True)
        run.kill()
    try:
        assert len(processes) >= 4, "two brokers, the server that forks them, and a tracker of resources"
        wait_for(lambda: not any(map(runs, processes)), f"the end of {processes}", TIMEOUT_S)
    finally:
        for process in processes:
            if process.is_running():
                process.kill()
