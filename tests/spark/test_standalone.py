"""`spark-submit jobs/serve.py` on a real standalone cluster, with an environment shipped as an archive."""

import contextlib
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tests.chaos.application import free_port
from tests.cluster import wait_for
from tests.spark.processes import SilentStranger, listening_of, strangers_at
from tests.spark.sessions import HAS_PRIVATE_SOCKETS, REPOSITORY, SPARK_HOME
from tests.spark.standalone import STOP_TIMEOUT_S, spark_environment, spark_properties, standalone_cluster
from tests.spark.test_application import consume, listening_processes, produce

BROKERS: Final = 2
"""Each has an executor, a JVM that unpacks the archive; two are enough to be one to an executor."""
RACKS: Final = {"spark.sparklog.racks": str(BROKERS)}


@pytest.fixture(scope="module")
def packaging() -> Iterator["subprocess.Popen[bytes]"]:
    """Have `make package` go on beside the start of Spark's processes."""
    command = ["make", "package", f"INTERPRETER={sys.executable}"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) as making:
        yield making


@pytest.fixture(scope="module")
def environment_archive(master: str, packaging: "subprocess.Popen[bytes]") -> Path:
    """The archive as `make package` builds it."""
    assert packaging.wait() == 0
    return REPOSITORY / "dist" / "sparklog-environment.tar.gz"


@pytest.fixture(scope="module")
def master(packaging: "subprocess.Popen[bytes]", tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Master and two Workers as processes on loopback; the Master's address."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone"), ("127.0.0.1",) * BROKERS) as address:
        yield address


def shipped_environment(archive: Path) -> dict[str, str]:
    """Return what docs/deploy.md says to set besides, for executors whose Python has nothing installed."""
    return {
        "spark.archives": f"{archive}#sparklog",
        "spark.executorEnv.PYTHONPATH": "./sparklog",
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys._base_executable,  # type: ignore[attr-defined]
    }


def submit_command(master: str, properties: dict[str, str]) -> list[str]:
    """Return the beginning of a spark-submit command."""
    return [
        *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master),
        *(part for key, value in properties.items() for part in ("--conf", f"{key}={value}")),
    ]


def submit(master: str, archive: Path, errors: IO[str]) -> subprocess.Popen[str]:
    """Submit jobs/serve.py as docs/deploy.md says; what it logs goes to `errors`."""
    return subprocess.Popen(
        [
            *submit_command(master, spark_properties() | shipped_environment(archive) | RACKS),
            *(str(REPOSITORY / "jobs" / "serve.py"), str(REPOSITORY / "conf" / "broker.properties")),
        ],
        env=spark_environment(),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_submitted_cluster_serves_clients_one_broker_an_executor_and_stops_with_status_0(
    master: str, environment_archive: Path, tmp_path: Path
) -> None:
    """What an operator does: submit, read the address, use it, SIGTERM. No stranger there disturbs it."""
    log = tmp_path / "serve.log"
    with (
        contextlib.ExitStack() as stack,
        log.open("w") as errors,
        submit(master, environment_archive, errors) as application,
    ):
        try:
            assert application.stdout is not None
            # spark-submit merges what the driver's Python logs into its own standard output.
            told: list[str] = []
            announced = (
                re.fullmatch(r"bootstrap\.servers=(\S+)\n", line)
                for line in application.stdout
                if told.append(line) is None
            )
            address = next(filter(None, announced), None)
            assert address is not None, "".join([*told, log.read_text()])
            bootstrap_servers = address[1]
            admin = AdminClient({"bootstrap.servers": bootstrap_servers})
            admin.create_topics([NewTopic("events", 1, BROKERS)])["events"].result(10)
            ports = {broker.port for broker in admin.list_topics(timeout=10).brokers.values()}
            executors = {
                psutil.Process(process).parent().parent().pid for process in listening_processes(ports)
            }
            assert len(executors) == BROKERS
            strangers: list[SilentStranger] = []
            if HAS_PRIVATE_SOCKETS:
                driver = psutil.Process(application.pid).children(recursive=True)
                # Spark's own have socket files, and nothing is called back.
                assert {each.port for each in listening_of(*driver)} == {
                    int(bootstrap_servers.rpartition(":")[2])
                }
                strangers = stack.enter_context(strangers_at([psutil.Process(each) for each in executors]))
            produce(bootstrap_servers, "events", 100)
            producer = KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
            for number in range(100, 200):
                producer.send("events", str(number).encode())
            producer.flush(30)
            producer.close()
            expected = [str(number).encode() for number in range(200)]
            assert consume(bootstrap_servers, "events", 200) == expected
            consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
            partition = KafkaPythonPartition("events", 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            values: list[bytes] = []
            deadline_s = time.monotonic() + 30
            while len(values) < 200 and time.monotonic() < deadline_s:
                values += [record.value for record in consumer.poll(500).get(partition, [])]
            consumer.close()
            assert values == expected
            for stranger in strangers:
                stranger.wait()
            assert all(psutil.pid_exists(executor) for executor in executors)
            assert {
                psutil.Process(each).parent().parent().pid for each in listening_processes(ports)
            } == executors
            application.send_signal(signal.SIGTERM)
            assert application.wait(STOP_TIMEOUT_S) == 0
            assert listening_processes(ports) == set()
        finally:
            application.kill()


@contextlib.contextmanager
def supervised(master: str, directory: Path, bootstrap_servers: str) -> Iterator[Path]:
    """Have the standalone cluster run and supervise the driver too; yields what tells its processes apart.

    Cluster mode takes no Python application, but it takes Spark's own runner of them.
    """
    properties = directory / "broker.properties"
    properties.write_text(
        f"controller.quorum.bootstrap.servers={bootstrap_servers}\nlog.dirs={directory / 'data'}\n"
    )
    jar = directory / "empty.jar"
    with zipfile.ZipFile(jar, "w"):
        pass
    command = [
        *submit_command(
            master,
            {
                **spark_properties(),
                "spark.driver.memory": "512m",
                # The driver takes a core, too, on one of the workers.
                "spark.executor.cores": "1",
                # More brokers would prove no more here; tests/chaos kills the drivers of three.
                "spark.cores.max": "1",
                "spark.sparklog.racks": "1",
            },
        ),
        *("--deploy-mode", "cluster", "--supervise", "--class", "org.apache.spark.deploy.PythonRunner"),
        *(f"file:{jar}", str(REPOSITORY / "jobs" / "serve.py"), "", str(properties)),
    ]
    submitted = subprocess.run(
        command, env=spark_environment(), check=True, capture_output=True, text=True, timeout=STOP_TIMEOUT_S
    )
    found = re.search(r"driver-\d+-\d+", submitted.stdout + submitted.stderr)
    assert found is not None, submitted.stderr
    try:
        yield properties
    finally:
        kill = ["org.apache.spark.deploy.Client", "kill", master, found[0]]
        with subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *kill],
            env=spark_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as client:
            try:
                wait_for(
                    lambda: not driver_processes(properties), "the driver has ended", timeout_s=STOP_TIMEOUT_S
                )
            finally:
                # It waits for five seconds before it asks what has become of the driver.
                client.kill()


def driver_processes(properties: Path) -> list[psutil.Process]:
    """Return the driver's processes, its JVM first: both are told of the properties file."""
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(properties) in (process.info["cmdline"] or [])
    ]
    return sorted(found, key=lambda process: process.pid)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_driver_under_the_standalone_clusters_supervision_is_started_again_and_has_what_was_there(
    master: str, tmp_path: Path
) -> None:
    """The recipe of docs/deploy.md: nobody but Spark sees to it that a killed driver comes back."""
    bootstrap_servers = f"127.0.0.1:{free_port()}"
    with supervised(master, tmp_path, bootstrap_servers) as properties:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

        def broker() -> set[int]:
            """Return the broker's process, if it serves."""
            with contextlib.suppress(KafkaException):
                return listening_processes(
                    {each.port for each in admin.list_topics(timeout=2).brokers.values()}
                )
            return set()

        before = wait_for(broker, "the broker serves", timeout_s=120)
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(10)
        produce(bootstrap_servers, "kept", 100)
        cluster_id = admin.list_topics(timeout=10).cluster_id

        def another_broker() -> bool:
            # Asked once: the old one serves for a moment longer, and then nobody does.
            now = broker()
            return bool(now) and not now & before

        driver_processes(properties)[0].kill()
        wait_for(another_broker, "a broker serves again, as another process", timeout_s=120)
        assert consume(bootstrap_servers, "kept", 100) == [str(number).encode() for number in range(100)]
        produce(bootstrap_servers, "kept", 100)
        assert admin.list_topics(timeout=10).cluster_id == cluster_id
