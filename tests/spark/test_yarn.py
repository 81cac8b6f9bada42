"""The recipes of docs/deploy.md for YARN, on a ResourceManager with three NodeManagers."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.java_libraries import LibrariesUnavailableError
from sparklog.jobs.scale.__main__ import main as scale
from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.remote_log.machine.ownership import OWNER_NAME, decode_owner
from sparklog.node.remote_log.machine.stored_metadata import LATEST_NAME, decode_stored_metadata
from tests.chaos.application import free_port
from tests.cluster import wait_for
from tests.spark.sessions import REPOSITORY
from tests.spark.standalone import STOP_TIMEOUT_S, WHOLE_SPARK_HOME
from tests.spark.test_application import consume, listening_processes, produce
from tests.spark.test_restored_application import consume as consume_in_group
from tests.spark.yarn import yarn_client, yarn_cluster

HOSTS: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
START_TIMEOUT_S: Final = 240.0
EXECUTOR: Final = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
APPLICATION_MASTER: Final = "org.apache.spark.deploy.yarn.ExecutorLauncher"
DRIVER: Final = "org.apache.spark.deploy.yarn.ApplicationMaster"
"""The application master of cluster mode."""
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


def recipe(mode: str) -> dict[str, str]:
    """Return the properties of docs/deploy.md's recipe for a deploy mode, with the Pythons of this machine.

    Cluster mode adds to client mode's, and leaves out the driver's Python.
    """
    page = (REPOSITORY / "docs" / "deploy.md").read_text()
    part = page.partition("\n## YARN")[2].partition("\n## ")[0]
    of_client, _, of_cluster = part.partition("--deploy-mode cluster")
    found = dict(re.findall(r"--conf ([\w.]+)=(\S+)", of_client + of_cluster * (mode == "cluster")))
    assert found.pop("spark.pyspark.driver.python").endswith("/venv/bin/python")
    assert found.pop("spark.pyspark.python") == "python3.11"
    of_driver = {"spark.pyspark.driver.python": sys.executable} if mode == "client" else {}
    return found | of_driver | {"spark.pyspark.python": sys._base_executable}  # type: ignore[attr-defined]


def shipped(properties: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Return the properties with the archive that was made."""
    assert properties["spark.yarn.dist.archives"] == "dist/sparklog-environment.tar.gz#sparklog"
    return {**properties, "spark.yarn.dist.archives": f"{archive}#sparklog"}


def unshipped(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of an application that has sparklog from this directory.

    To unpack the archive on each node takes as long as the rest.
    """
    return {
        key: str(REPOSITORY) if value == "./sparklog" else value
        for key, value in properties.items()
        if key != "spark.yarn.dist.archives"
    } | {"spark.pyspark.python": sys.executable}


def submit_command(directory: Path, mode: str, properties: Mapping[str, str], *application: str) -> list[str]:
    """Return the command for a small application that listens on loopback alone.

    The application master's host is its node's address.
    """
    settings = {
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "{{NM_HOST}}",
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
        *(str(WHOLE_SPARK_HOME / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", mode),
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
    """A cluster at one of some hosts, as its clients see it."""

    def __init__(self, port: int, *hosts: str) -> None:
        self.bootstrap_servers = ",".join(f"{host}:{port}" for host in hosts)

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

    def cluster_id(self) -> str:
        return self._admin().list_topics(timeout=10).cluster_id

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


@contextlib.contextmanager
def client_mode(
    environment: Mapping[str, str], directory: Path, settings: Mapping[str, str], port: int
) -> Iterator[Served]:
    """Submit jobs/serve.py in client mode with four executors; stop it with SIGTERM, as an operator does."""
    properties = directory / "broker.properties"
    properties.write_text(
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}\nlog.dirs={directory / 'data'}\n"
    )
    settings = {
        **settings,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    command = submit_command(
        directory, "client", settings, str(REPOSITORY / "jobs" / "serve.py"), str(properties)
    )
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
            yield Served(port, "127.0.0.1")
            application.terminate()
            assert application.wait(STOP_TIMEOUT_S) == 0
        finally:
            application.kill()


class Submitted:
    """An application in cluster mode: its driver is a container."""

    def __init__(self, yarn: Mapping[str, str], client: "subprocess.Popen[bytes]", log: Path) -> None:
        self._yarn = yarn
        self._client = client
        """spark-submit, which waits for the end of the application."""
        self._log = log

    def driver(self) -> psutil.Process:
        """Return the application master of the present attempt."""
        (driver,) = containers(self._yarn, DRIVER)
        return driver

    def is_running(self) -> bool:
        """Whether YARN may still run the application; fails the test if it does not."""
        assert self._client.poll() is None, self.logs()
        return True

    def lose_container(self, cluster: Served) -> None:
        """Kill the executor of a broker; return when there is another one, and the broker is in sync."""
        executor = psutil.Process(min(cluster.broker_processes())).parent().parent()
        executor.kill()
        wait_for(lambda: not cluster.is_in_sync(3), "the loss is seen")
        wait_for(lambda: self.is_running() and cluster.is_in_sync(3), "the broker is back")

    def lose_driver(self, cluster: Served) -> None:
        """Kill the application master; return when the brokers of the second attempt serve."""
        before = cluster.broker_processes()
        self.driver().kill()

        def is_back() -> bool:
            now = cluster.broker_processes()
            return self.is_running() and len(now) == 3 and not now & before

        wait_for(is_back, "another attempt serves", timeout_s=START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop the application in order, as the page says."""
        self.driver().terminate()
        assert self.wait() == 0, self.logs()

    def wait(self) -> int:
        """Return the exit status of spark-submit."""
        return self._client.wait(START_TIMEOUT_S)

    def kill(self) -> None:
        """End the application if it goes on."""
        if self._client.poll() is None and (application_id := self._application_id()):
            yarn_client(self._yarn, "application", "-kill", application_id)
        self._client.kill()

    def _application_id(self) -> str:
        """Return YARN's id; empty before it has accepted the application."""
        found = re.search(r"application_\d+_\d+", self._log.read_text())
        return "" if found is None else found[0]

    def logs(self) -> str:
        """Return the end of what spark-submit and the application master's attempts have written."""
        nodes = Path(self._yarn["HADOOP_CONF_DIR"]).parent
        masters = sorted(nodes.glob("node-*/logs/application_*/container_*_000001/std*"))
        return "\n".join(
            f"--- {file}\n{file.read_text(errors='replace')[-6000:]}" for file in (self._log, *masters)
        )


@contextlib.contextmanager
def cluster_mode(
    yarn: Mapping[str, str], directory: Path, settings: Mapping[str, str], *properties: str
) -> Iterator[Submitted]:
    """Submit jobs/serve.py in cluster mode, with `properties` as lines of its file."""
    (directory / "broker.properties").write_text("\n".join(properties))
    application = ["--files", "broker.properties", str(REPOSITORY / "jobs" / "serve.py"), "broker.properties"]
    log = directory / "submit.log"
    with (
        log.open("wb") as written,
        subprocess.Popen(
            submit_command(directory, "cluster", settings, *application),
            cwd=directory,
            env=dict(yarn),
            stdout=written,
            stderr=written,
        ) as client,
    ):
        submitted = Submitted(yarn, client, log)
        try:
            yield submitted
        except BaseException as error:
            error.add_note(submitted.logs())
            raise
        finally:
            submitted.kill()


@pytest.fixture(scope="module")
def environment_archive() -> Path:
    """The archive as `make package` builds it."""
    command = ["make", "package", f"INTERPRETER={sys.executable}"]
    subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
    return REPOSITORY / "dist" / "sparklog-environment.tar.gz"


@pytest.mark.long
@pytest.mark.timeout(460)
def test_client_mode_survives_lost_containers_and_application_masters_and_grows(
    yarn: dict[str, str], environment_archive: Path, tmp_path: Path
) -> None:
    """YARN replaces what it loses, and starts more executors than at first if it is asked."""
    settings = shipped(recipe("client"), environment_archive)
    with client_mode(yarn, tmp_path, settings, free_port()) as cluster:
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


@pytest.mark.long
@pytest.mark.timeout(460)
def test_cluster_mode_goes_on_over_its_directories_after_the_loss_of_containers_and_application_master(
    yarn: dict[str, str], environment_archive: Path, tmp_path: Path
) -> None:
    """The driver is a container, too, and Python there has what the archive brings."""
    port = free_port()
    cluster = Served(port, *HOSTS)
    with cluster_mode(
        yarn,
        tmp_path,
        shipped(recipe("cluster"), environment_archive),
        f"controller.quorum.bootstrap.servers=spark.driver.host:{port}",
        f"log.dirs={tmp_path / 'data'}",
    ) as application:
        wait_until_it_serves(application, cluster)
        for process in [application.driver(), *containers(yarn, EXECUTOR)]:
            unpacked = Path(process.cwd()) / "sparklog"
            assert unpacked.is_symlink(), "once a node, by YARN"
        cluster.create(3)
        living = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        produce_by(living, 100)
        cluster_id = cluster.cluster_id()
        application.lose_container(cluster)
        produce(cluster.bootstrap_servers, "events", 100)
        application.lose_driver(cluster)
        produce_by(living, 100)
        values = consume(cluster.bootstrap_servers, "events", 300)
        assert values == [str(number).encode() for number in range(100)] * 3
        assert cluster.cluster_id() == cluster_id
        application.stop()


@pytest.mark.long
@pytest.mark.timeout(460)
def test_cluster_mode_goes_on_from_the_tier_without_directories_that_outlive_the_application_master(
    yarn: dict[str, str], tmp_path: Path
) -> None:
    """YARN may start it again on other nodes: the URI is all that both attempts have."""
    port, tier = free_port(), tmp_path / "tier"
    cluster = Served(port, *HOSTS)
    with cluster_mode(
        yarn,
        tmp_path,
        unshipped(recipe("cluster")),
        f"controller.quorum.bootstrap.servers=spark.driver.host:{port}",
        f"sparklog.remote.uri=file://{tier}",
        "sparklog.remote.max.lag.ms=500",
        "sparklog.remote.metadata.lag.ms=100",
    ) as application:
        wait_until_it_serves(application, cluster)
        cluster.create(3)
        produce(cluster.bootstrap_servers, "events", 100)
        assert consume_in_group(cluster.bootstrap_servers, 40) == [str(number) for number in range(40)]
        cluster_id = cluster.cluster_id()
        wait_for(lambda: is_copied(tier, cluster.bootstrap_servers), "everything is in the tier")
        directories = Path(application.driver().cwd()).glob("tmp/sparklog-*/broker-*")
        assert sorted(each.name for each in directories) == ["broker-0", "broker-1", "broker-2"]
        application.lose_driver(cluster)
        assert consume_in_group(cluster.bootstrap_servers, 60) == [str(number) for number in range(40, 100)]
        produce(cluster.bootstrap_servers, "events", 100)
        assert consume_in_group(cluster.bootstrap_servers, 100) == [str(number) for number in range(100)]
        assert cluster.cluster_id() == cluster_id
        application.stop()
    assert decode_owner((tier / OWNER_NAME).read_bytes()).is_stopped
    assert decode_stored_metadata((tier / LATEST_NAME).read_bytes()).is_copied
    assert copied_ends(tier, "events") == {0: 200}
    nodes = Path(yarn["HADOOP_CONF_DIR"]).parent
    wait_for(
        lambda: not list(nodes.glob("node-*/local/usercache/*/appcache/*")), "YARN removes the directories"
    )


@pytest.mark.long
@pytest.mark.timeout(180)
def test_cluster_mode_has_the_reason_of_a_refused_start_in_the_drivers_output(
    yarn: dict[str, str], tmp_path: Path
) -> None:
    """Spark's diagnostics have no more than the driver's exit status."""
    with cluster_mode(
        yarn,
        tmp_path,
        unshipped(recipe("cluster")) | {"spark.yarn.maxAppAttempts": "1"},
        f"controller.quorum.bootstrap.servers=spark.driver.host:{free_port()}",
        "listeners=PLAINTEXT://0.0.0.0:0",
    ) as application:
        assert application.wait() == 1
        logs = application.logs()
        assert "User application exited with status 1" in logs
        assert "sparklog can't start: PLAINTEXT://0.0.0.0 is reached from other hosts" in logs


def produce_by(producer: Producer, count: int) -> None:
    """Produce as `produce` does, by a client that goes on afterwards."""
    refused: list[object] = []
    for number in range(count):
        producer.produce(
            "events", str(number), on_delivery=lambda error, _: refused.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert refused == []


def wait_until_it_serves(application: Submitted, cluster: Served) -> None:
    wait_for(
        lambda: application.is_running() and len(cluster.broker_processes()) == 3,
        "the cluster serves",
        timeout_s=START_TIMEOUT_S,
    )


def is_copied(tier: Path, bootstrap_servers: str) -> bool:
    """Whether the tier has all records of the topic and of the groups' offsets, and both topics' metadata."""
    latest = tier / LATEST_NAME
    snapshot = tier / decode_stored_metadata(latest.read_bytes()).name if latest.exists() else latest
    # Replaced snapshots are deleted.
    metadata = snapshot.read_bytes() if snapshot.exists() else b""
    ends = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "ends"})
    try:
        return all(
            topic.encode() in metadata and copied_ends(tier, topic) == record_ends(ends, topic)
            for topic in ("events", "__consumer_offsets")
        )
    finally:
        ends.close()


def record_ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """Return the high watermarks of a topic's partitions that have records."""
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    found = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
        for partition in partitions
    }
    return {partition: end for partition, end in found.items() if end}


def copied_ends(tier: Path, topic: str) -> dict[int, int]:
    """Return the ends of the copies of a topic's partitions that have records there."""
    found = {}
    for segments in tier.glob(f"segments/{topic}-*/*"):
        topic_id, partition = UUID(segments.parent.name.removeprefix(f"{topic}-")), int(segments.name)
        name = manifest_name(topic_id, partition)
        if (tier / name).exists():
            found[partition] = decode_manifest(name, (tier / name).read_bytes()).end_offset
    return found
