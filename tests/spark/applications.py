"""Applications in a process and a JVM of their own, for what a whole process is needed to see."""

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.sessions import REPOSITORY

TIMEOUT_S = 180


def run_application(
    code: str, directory: Path, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python code in `directory`; return what it printed, having seen that it succeeded."""
    script = directory / "application.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done
