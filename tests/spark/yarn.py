"""YARN on loopback: a ResourceManager and NodeManagers in one JVM; containers are processes, as anywhere."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.java_libraries import SPARK_JARS, yarn_source_command
from tests.cluster import wait_for
from tests.spark.standalone import spark_environment

SOURCE: Final = Path(__file__).parent / "java" / "YarnCluster.java"
CORE_SITE: Final = {"fs.defaultFS": "file:///"}
"""Without HDFS: files of applications stay where they are."""
YARN_SITE: Final = {
    "yarn.resourcemanager.hostname": "127.0.0.1",
    **{
        f"yarn.resourcemanager.{server}address": "127.0.0.1:0"
        for server in ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")
    },
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "8",
    "yarn.scheduler.minimum-allocation-mb": "128",
    # Disks that are nearly full make NodeManagers unhealthy, which has nothing to do with this.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
}
CAPACITY_SCHEDULER: Final = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
}
START_TIMEOUT_S: Final = 90.0
CLIENT: Final = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
"""The command `yarn`, for applications and containers."""
CLIENT_TIMEOUT_S: Final = 60.0


@contextlib.contextmanager
def yarn_cluster(directory: Path, hosts: Sequence[str]) -> Iterator[dict[str, str]]:
    """Start YARN with a NodeManager on each of `hosts`; yields the environment with which to submit to it."""
    configuration = directory / "hadoop"
    configuration.mkdir()
    _write(configuration / "core-site.xml", CORE_SITE | {"hadoop.tmp.dir": str(directory / "tmp")})
    site = configuration / "yarn-site.xml"
    _write(site, YARN_SITE)
    _write(configuration / "capacity-scheduler.xml", CAPACITY_SCHEDULER)
    # No more than on any machine, since containers may inherit it.
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
    }
    command = yarn_source_command(SOURCE, str(directory), *hosts, configuration=configuration)
    log = directory / "yarn.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=errors, stderr=errors
        ) as yarn,
    ):
        try:
            ready = directory / "yarn-site.xml"

            def is_ready() -> bool:
                assert yarn.poll() is None, log.read_text()
                return ready.exists()

            wait_for(is_ready, "YARN's servers start", timeout_s=START_TIMEOUT_S)
            ready.rename(site)
            yield spark_environment() | {"HADOOP_CONF_DIR": str(configuration)}
            assert yarn.stdin is not None
            yarn.stdin.close()
            yarn.wait(START_TIMEOUT_S)
        finally:
            yarn.kill()


def yarn_client(environment: Mapping[str, str], *arguments: str) -> str:
    """Run the command `yarn` to its end; return what it printed, having seen that it succeeded."""
    classes = f"{environment['HADOOP_CONF_DIR']}:{SPARK_JARS}/*"
    command = [f"{environment['JAVA_HOME']}/bin/java", "-cp", classes, CLIENT, *arguments]
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _write(file: Path, properties: Mapping[str, str]) -> None:
    entries = "".join(
        f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
        for key, value in properties.items()
    )
    file.write_text(f"<configuration>\n{entries}</configuration>\n")
