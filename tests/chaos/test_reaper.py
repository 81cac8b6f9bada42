"""Nothing of a run may outlive it, even when the run itself is killed."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos.reaper import MARK, processes_of
from tests.cluster import wait_for

RUN_THAT_IS_KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.chaos.reaper import MARK, Reaper

Reaper(sys.argv[1], Path(sys.argv[2]))
marked = {**os.environ, MARK: sys.argv[1]}
for command in ("echo; exec sleep 600", "sleep 600 & echo; exec sleep 600"):
    shell = ["sh", "-c", command]
    process = subprocess.Popen(shell, env=marked, start_new_session=True, stdout=subprocess.PIPE)
    process.stdout.readline()
os.killpg(process.pid, signal.SIGSTOP)
print("ready", flush=True)
sys.stdin.read()
"""


def test_reaper_ends_what_a_killed_run_has_left_behind_and_nothing_else(tmp_path: Path) -> None:
    """Frozen processes and orphans would stay for ever, on a machine that is not ours."""
    run, other = f"run-{tmp_path.name}", f"other-{tmp_path.name}"
    with (
        subprocess.Popen(["sleep", "600"], env={MARK: other}) as bystander,
        subprocess.Popen(
            [sys.executable, "-c", RUN_THAT_IS_KILLED, run, str(tmp_path)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as killed,
    ):
        assert killed.stdout is not None
        assert killed.stdout.readline() == "ready\n"
        assert len(processes_of(run)) >= 3
        killed.send_signal(signal.SIGKILL)
        wait_for(lambda: not processes_of(run), "nothing is left of the run")
        assert processes_of(other) == [bystander.pid]
        bystander.kill()
