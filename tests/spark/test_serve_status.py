"""The exit status of a served cluster, by which a supervisor decides whether to start it again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.spark.sessions import REPOSITORY, SPARK_HOME

STOP_TIMEOUT_S = 60
SUBMIT_ARGUMENTS = (
    "--master local[3] --conf spark.sparklog.racks=1 --conf spark.ui.enabled=false pyspark-shell"
)


@pytest.mark.parametrize(
    ("java_is_killed", "status"),
    [
        pytest.param(False, 0, id="operator's SIGTERM"),
        pytest.param(True, 1, id="JVM killed", marks=pytest.mark.long),
    ],
)
def test_served_cluster_ends_with_status_0_for_an_operators_signal_alone(
    java_is_killed: bool, status: int, tmp_path: Path
) -> None:
    """After a status of 0 a supervisor leaves the cluster down: nothing else that ends it may give that."""
    log = tmp_path / "serve.log"
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_SUBMIT_ARGS": SUBMIT_ARGUMENTS,
    }
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "sparklog.jobs.serve"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as application,
    ):
        try:
            assert application.stdout is not None
            announced = any(line.startswith("bootstrap.servers=") for line in application.stdout)
            assert announced, log.read_text()
            if java_is_killed:
                (java,) = [
                    each for each in psutil.Process(application.pid).children() if each.name() == "java"
                ]
                java.kill()
            else:
                application.send_signal(signal.SIGTERM)
            assert application.wait(STOP_TIMEOUT_S) == status, log.read_text()
        finally:
            application.kill()
