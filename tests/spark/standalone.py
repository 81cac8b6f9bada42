"""A standalone cluster of Spark as processes on loopback: a Master and Workers, as if on one host or many."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from tests.chaos.application import spark_properties_file
from tests.cluster import wait_for
from tests.spark.sessions import DISCOVERY_SCRIPT, REPOSITORY, SPARK_HOME

WHOLE_SPARK_HOME = Path(pyspark.__file__).parent
"""As on a machine of a cluster: a Python without PySpark has PySpark from there."""
STOP_TIMEOUT_S = 60


def archive_options() -> str:
    """Return how JVMs take Spark's classes from the archive that make has made, as docs/deploy.md says.

    Without what else make sets: Spark's own logs say when its processes are up. Empty where there is none.
    """
    defaults = re.search(
        r"^spark\.driver\.defaultJavaOptions (.*)$", Path(spark_properties_file()).read_text(), re.MULTILINE
    )
    return "" if defaults is None else " ".join(re.findall(r"-X\S+", defaults[1]))


def spark_environment() -> dict[str, str]:
    """Return an environment for Spark's own processes."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": archive_options(),
    }


@contextlib.contextmanager
def standalone_cluster(
    directory: Path,
    hosts: Sequence[str],
    disk: Path | None = None,
    *,
    worker_size: tuple[int, str] = (2, "1g"),
) -> Iterator[str]:
    """Start a Master and a Worker on each of `hosts`; yields the Master's address.

    With a `disk` each Worker and its executors see a directory of their own there, `directory / "disk-<n>"`,
    as machines do that each have a disk at the same path. That needs the right to mount. `worker_size` is the
    number of cores and the memory that a Worker has for executors.
    """
    environment = {
        **spark_environment(),
        "SPARK_WORKER_OPTS": (
            "-Dspark.worker.resource.broker.amount=1 "
            f"-Dspark.worker.resource.broker.discoveryScript={DISCOVERY_SCRIPT}"
        ),
    }
    with contextlib.ExitStack() as stack:

        def launch(name: str, *command: str) -> Path:
            log = directory / f"{name}.log"
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait, STOP_TIMEOUT_S)
            stack.callback(process.terminate)
            return log

        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        master_log = launch(
            "master",
            *(spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
            *("--port", "0", "--webui-port", "0"),
        )
        address = wait_for(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", master_log.read_text()),
            "the Master starts",
            timeout_s=60,
        )[1]
        worker_logs = []
        for number, host in enumerate(hosts):
            seeing_its_disk: tuple[str, ...] = ()
            if disk is not None:
                own_disk = directory / f"disk-{number}"
                own_disk.mkdir()
                script = 'mount --bind "$0" "$1" && shift && exec "$@"'
                seeing_its_disk = ("unshare", "--mount", "sh", "-c", script, str(own_disk), str(disk))
            worker_logs.append(
                launch(
                    f"worker-{number}",
                    *(*seeing_its_disk, spark_class, "org.apache.spark.deploy.worker.Worker"),
                    *("--host", host, "--webui-port", "0"),
                    *("--cores", str(worker_size[0]), "--memory", worker_size[1]),
                    *("--work-dir", str(directory / f"work-{number}"), address),
                )
            )
        for log in worker_logs:
            wait_for(
                lambda log=log: "Successfully registered with master" in log.read_text(),
                "a Worker registers",
                timeout_s=60,
            )
        yield address


def spark_properties() -> dict[str, str]:
    """Return what docs/deploy.md says to set, where executors have all that they need."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.executor.resource.broker.amount": "1",
        "spark.executor.resource.broker.discoveryScript": str(DISCOVERY_SCRIPT),
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        "spark.executorEnv.SPARK_HOME": str(WHOLE_SPARK_HOME),
        "spark.driver.extraJavaOptions": archive_options(),
        "spark.executor.extraJavaOptions": archive_options(),
        "spark.pyspark.python": sys.executable,
    }
