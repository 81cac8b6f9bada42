"""The recipe of docs/deploy.md for YARN in client mode, on a ResourceManager with three NodeManagers."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.java_libraries import LibrariesUnavailableError
from sparklog.jobs.scale.__main__ import main as scale
from tests.chaos.application import free_port
from tests.cluster import wait_for
from tests.spark.sessions import REPOSITORY
from tests.spark.standalone import STOP_TIMEOUT_S, WHOLE_SPARK_HOME
from tests.spark.test_application import consume, listening_processes, produce
from tests.spark.yarn import yarn_cluster

HOSTS: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
START_TIMEOUT_S: Final = 120.0
EXECUTOR: Final = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
APPLICATION_MASTER: Final = "org.apache.spark.deploy.yarn.ExecutorLauncher"
pytestmark = pytest.mark.skipif("YARN" not in os.environ, reason="takes minutes; set YARN=1")


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """YARN with three nodes; the environment with which to submit to it."""
    with contextlib.ExitStack() as stack:
        try:
            environment = stack.enter_context(yarn_cluster(tmp_path_factory.mktemp("yarn"), HOSTS))
        except LibrariesUnavailableError as unavailable:
            pytest.skip(str(unavailable))
        yield environment | {"SPARK_HOME": str(WHOLE_SPARK_HOME)}


def recipe() -> dict[str, str]:
    """Return the properties of docs/deploy.md's recipe, whose executors have sparklog from this directory."""
    page = (REPOSITORY / "docs" / "deploy.md").read_text()
    part = page.partition("\n## YARN")[2].partition("\n## ")[0]
    found = dict(re.findall(r"--conf ([\w.]+)=(\S+)", part))
    # To unpack it on each node takes as long as the rest.
    assert found.pop("spark.archives").endswith("#sparklog")
    assert found.pop("spark.executorEnv.PYTHONPATH") == "./sparklog"
    return found | {"spark.executorEnv.PYTHONPATH": str(REPOSITORY), "spark.pyspark.python": sys.executable}


def submit_command(directory: Path, properties: Mapping[str, str], *application: str) -> list[str]:
    """Return the recipe's command, for a small application that listens on loopback alone."""
    settings = {
        **recipe(),
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.yarn.am.memory": "384m",
        "spark.executor.extraJavaOptions": QUICK,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.yarn.am.extraJavaOptions": QUICK,
        "spark.ui.enabled": "false",
        "spark.yarn.jars": f"local:{WHOLE_SPARK_HOME}/jars/*",
        "spark.yarn.stagingDir": f"file://{directory}/staging",
        **properties,
    }
    return [
        *(str(WHOLE_SPARK_HOME / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", "client"),
        *(part for item in settings.items() for part in ("--conf", "=".join(item))),
        *application,
    ]


def containers(yarn: Mapping[str, str], main_class: str) -> list[psutil.Process]:
    """Return the JVMs of a main class in YARN's containers, without the shells that start them."""
    nodes = str(Path(yarn["HADOOP_CONF_DIR"]).parent)
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if main_class in (command := process.info["cmdline"] or [])
        and command[0].endswith("java")
        and any(nodes in argument for argument in command)
    ]


class Served:
    """A cluster at an address, as its clients see it."""

    def __init__(self, port: int) -> None:
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def broker_processes(self) -> set[int]:
        """Return the processes of the brokers; none while nothing serves."""
        with contextlib.suppress(KafkaException):
            brokers = self._admin().list_topics(timeout=2).brokers
            return listening_processes({each.port for each in brokers.values()})
        return set()

    def is_in_sync(self, replicas: int) -> bool:
        """Whether every partition of the topic has so many replicas in sync."""
        with contextlib.suppress(KafkaException):
            topic = self._admin().list_topics("events", timeout=2).topics["events"]
            isrs = [len(partition.isrs) for partition in topic.partitions.values()]
            return bool(isrs) and min(isrs) == replicas
        return False

    def create(self, replicas: int) -> None:
        admin = self._admin()
        admin.create_topics([NewTopic("events", 1, replicas)])["events"].result(20)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


@contextlib.contextmanager
def client_mode(environment: Mapping[str, str], directory: Path, port: int) -> Iterator[Served]:
    """Submit jobs/serve.py in client mode with four executors; stop it with SIGTERM, as an operator does."""
    properties = directory / "broker.properties"
    properties.write_text(
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}\nlog.dirs={directory / 'data'}\n"
    )
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    command = submit_command(directory, settings, str(REPOSITORY / "jobs" / "serve.py"), str(properties))
    log = directory / "serve.log"
    with (
        log.open("w") as written,
        subprocess.Popen(command, env=environment, stdout=written, stderr=written) as application,
    ):
        try:

            def serves() -> bool:
                assert application.poll() is None, log.read_text()
                return "bootstrap.servers=" in log.read_text()

            wait_for(serves, "the cluster serves", timeout_s=START_TIMEOUT_S)
            yield Served(port)
            application.terminate()
            assert application.wait(STOP_TIMEOUT_S) == 0
        finally:
            application.kill()


@pytest.mark.timeout(300)
def test_client_mode_survives_lost_containers_and_application_masters_and_grows(
    yarn: dict[str, str], tmp_path: Path
) -> None:
    """YARN replaces what it loses, and starts more executors than at first if it is asked."""
    with client_mode(yarn, tmp_path, free_port()) as cluster:
        cluster.create(3)
        produce(cluster.bootstrap_servers, "events", 100)
        brokers = cluster.broker_processes()
        assert len(containers(yarn, EXECUTOR)) == 4
        psutil.Process(min(brokers)).parent().parent().kill()
        wait_for(lambda: not cluster.is_in_sync(3), "the loss is seen")
        wait_for(lambda: cluster.is_in_sync(3), "the broker is back")
        wait_for(lambda: len(containers(yarn, EXECUTOR)) == 4, "YARN starts another container")
        assert scale([cluster.bootstrap_servers, "--racks", "5"]) == 0
        wait_for(lambda: len(containers(yarn, EXECUTOR)) == 6, "an executor for tasks stays")
        produce(cluster.bootstrap_servers, "events", 100)
        brokers = cluster.broker_processes()
        (master,) = containers(yarn, APPLICATION_MASTER)
        master.kill()
        wait_for(
            lambda: len(now := cluster.broker_processes()) == 5 and not now & brokers,
            "five brokers are back",
            timeout_s=START_TIMEOUT_S,
        )
        assert len(consume(cluster.bootstrap_servers, "events", 200)) == 200
