"""`spark-submit jobs/serve.py` on a real standalone cluster, with an environment shipped as an archive."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tests.cluster import wait_for
from tests.spark.sessions import DISCOVERY_SCRIPT, REPOSITORY, SPARK_HOME
from tests.spark.test_application import consume, listening_processes, produce

STOP_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def environment_archive() -> Path:
    """The archive as `make package` builds it."""
    subprocess.run(["make", "package"], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    return REPOSITORY / "dist" / "sparklog-environment.tar.gz"


def spark_environment() -> dict[str, str]:
    """Return an environment for Spark's own processes: its defaults, whose logs say when they are up."""
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    return {**inherited, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Master and three Workers as processes on loopback; the Master's address."""
    directory = tmp_path_factory.mktemp("standalone")
    environment = {
        **spark_environment(),
        "SPARK_WORKER_OPTS": (
            "-Dspark.worker.resource.broker.amount=1 "
            f"-Dspark.worker.resource.broker.discoveryScript={DISCOVERY_SCRIPT}"
        ),
    }
    with contextlib.ExitStack() as stack:

        def launch(name: str, *arguments: str) -> Path:
            log = directory / f"{name}.log"
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
                env=environment,
                cwd=directory,
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait, STOP_TIMEOUT_S)
            stack.callback(process.terminate)
            return log

        master_log = launch(
            "master",
            *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
            *("--port", "0", "--webui-port", "0"),
        )
        address = wait_for(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", master_log.read_text()),
            "the Master starts",
            timeout_s=60,
        )[1]
        worker_logs = [
            launch(
                f"worker-{number}",
                *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"),
                *("--cores", "2", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"), address),
            )
            for number in range(3)
        ]
        for log in worker_logs:
            wait_for(
                lambda log=log: "Successfully registered with master" in log.read_text(),
                "a Worker registers",
                timeout_s=60,
            )
        yield address


def submit(master: str, archive: Path, errors: IO[str]) -> subprocess.Popen[str]:
    """Submit jobs/serve.py as docs/deploy.md says; what it logs goes to `errors`."""
    properties = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.executor.resource.broker.amount": "1",
        "spark.executor.resource.broker.discoveryScript": str(DISCOVERY_SCRIPT),
        "spark.archives": f"{archive}#sparklog",
        "spark.executorEnv.PYTHONPATH": "./sparklog",
        "spark.pyspark.driver.python": sys.executable,
        # The executors' Python has nothing installed: what they need comes out of the archive.
        "spark.pyspark.python": sys._base_executable,  # type: ignore[attr-defined]
    }
    return subprocess.Popen(
        [
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master),
            *(part for key, value in properties.items() for part in ("--conf", f"{key}={value}")),
            *(str(REPOSITORY / "jobs" / "serve.py"), str(REPOSITORY / "conf" / "broker.properties")),
        ],
        env=spark_environment(),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


@pytest.mark.timeout(300)
def test_submitted_cluster_serves_clients_one_broker_an_executor_and_stops_with_status_0(
    master: str, environment_archive: Path, tmp_path: Path
) -> None:
    """What an operator does: submit, read the address, use it, SIGTERM."""
    log = tmp_path / "serve.log"
    with log.open("w") as errors, submit(master, environment_archive, errors) as application:
        try:
            assert application.stdout is not None
            # spark-submit merges what the driver's Python logs into its own standard output.
            announced = (re.fullmatch(r"bootstrap\.servers=(\S+)\n", line) for line in application.stdout)
            address = next(filter(None, announced), None)
            assert address is not None, log.read_text()
            bootstrap_servers = address[1]
            admin = AdminClient({"bootstrap.servers": bootstrap_servers})
            admin.create_topics([NewTopic("events", 1, 3)])["events"].result(10)
            ports = {broker.port for broker in admin.list_topics(timeout=10).brokers.values()}
            executors = {
                psutil.Process(process).parent().parent().pid for process in listening_processes(ports)
            }
            assert len(executors) == 3
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
            application.send_signal(signal.SIGTERM)
            assert application.wait(STOP_TIMEOUT_S) == 0
            assert listening_processes(ports) == set()
        finally:
            application.kill()
