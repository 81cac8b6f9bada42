"""The two clusters that are compared, each three brokers on loopback, each seen only through its address.

What a broker costs is read from the operating system: the CPU seconds and resident memory of the
processes that listen on the advertised ports. Apache Kafka's are controllers as well; ours have theirs in the
driver, and executors around them. What all of a cluster takes is read of everything that was started for it.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.java_libraries import kafka_command, run_kafka_program
from benchmarks.longest_stall import longest_stall_ms
from sparklog.driver.spark.rack import BACKOFF

BROKERS = 3
KAFKA_JVM_OPTIONS: Final = (
    "-Xmx1g",
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Those of Kafka's own scripts for its brokers (kafka-server-start.sh, kafka-run-class.sh)."""
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
COMMON_SETTINGS: Final = "group.initial.rebalance.delay.ms=0\nlog.segment.delete.delay.ms=1000\n"
"""Of both clusters: a group's wait for members to join would be measured as joining, and the deleted
topics of a minute, a gigabyte each, would fill the page cache."""
SECURED: Final = ("SSL", "SASL_SSL")
"""The protocols of the listeners that a secured cluster has beside the plain one, by which they are named."""


@dataclass(frozen=True, slots=True)
class ClusterUnderTest:
    """A running cluster."""

    name: str
    bootstrap_servers: str
    hosts: Sequence[psutil.Process]
    """Processes that are there only to host the brokers: Spark's executors; none for Apache Kafka."""
    roots: Callable[[], Sequence[psutil.Process]]
    """Returns the processes that were started for it; all others that it needs are their descendants."""
    restart: Callable[[int], None]
    """Starts the broker of that id again, which was told to end, as our racks' supervisors do: once it has
    ended, and after their pause. Does nothing where that happens by itself. Blocks."""
    secured: Mapping[str, str] = field(default_factory=dict)
    """Where its other listeners are, by their protocols (`benchmarks.security`)."""

    def brokers(self) -> dict[int, psutil.Process]:
        """Return the processes of the brokers that are up, by broker id."""
        metadata = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(timeout=10)
        listening = {
            connection.laddr.port: connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        return {
            broker.id: psutil.Process(listening[broker.port])
            for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id)
            if broker.port in listening
        }

    def brokers_cpu_s(self) -> float:
        """Return the CPU seconds, user and system, that the brokers have used since they started.

        With those of the processes that a broker has for part of its work, the ones that have ended included.
        """
        return sum(cpu_s(broker) for broker in self.brokers().values())

    def brokers_resident_mib(self) -> float:
        """Return the brokers' resident memory."""
        return sum(broker.memory_info().rss for broker in self.brokers().values()) / 2**20

    def hosts_resident_mib(self) -> float:
        """Return the resident memory of the processes around the brokers."""
        return sum(host.memory_info().rss for host in self.hosts) / 2**20

    def everything_resident_mib(self) -> float:
        """Return the resident memory of everything that must run, controllers and drivers included.

        Pages that processes share, as a worker does with the one that it was forked from, count for each.
        """
        return resident_mib(self.roots())

    def create_topic(self, topic: str, partitions: int = 3, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with a replica on every broker."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        new = NewTopic(topic, partitions, BROKERS, config=dict(config or {}))
        admin.create_topics([new])[topic].result(30)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(30)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants, living and waited for."""
    used_s = float(sum(process.cpu_times()[:4]))
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used_s += sum(child.cpu_times()[:4])
    return used_s


@contextlib.contextmanager
def sparklog_cluster(
    security: Mapping[str, str] = MappingProxyType({}),
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[ClusterUnderTest]:
    """Start this project's cluster as its users do: spark-submit jobs/serve.py, three executors.

    `settings` are further ones of the brokers. With `security`, Kafka's keys, it has a listener of each of
    `SECURED` beside the plain one.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-sparklog-") as directory:
        log = Path(directory) / "serve.log"
        properties = Path(directory) / "broker.properties"
        secured: dict[str, str] = {}
        if security:
            plain, *others = (f"127.0.0.1:{port}" for port in free_ports(1 + len(SECURED)))
            secured = dict(zip(SECURED, others, strict=True))
            listeners = [
                f"PLAINTEXT://{plain}",
                *(f"{name}://{address}" for name, address in secured.items()),
            ]
            security = {
                **security,
                "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *SECURED)),
                "controller.quorum.bootstrap.servers": ",".join([plain, *listeners[1:]]),
            }
        properties.write_text(COMMON_SETTINGS + _properties({**settings, **security}))
        command = [
            str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit"),
            *("--properties-file", os.environ["SPARK_PROPERTIES_FILE"]),
            *("--master", "local-cluster[3,1,1024]"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.decommission.enabled=true"),
            *("jobs/serve.py", str(properties)),
        ]
        with log.open("w") as output, _process(command, output, subprocess.PIPE, signal.SIGTERM) as process:
            assert process.stdout is not None
            for line in process.stdout:
                address = re.match(r"bootstrap\.servers=(\S+)", line)
                if address:
                    break
            else:
                raise RuntimeError(f"the cluster did not start:\n{log.read_text()[-4000:]}")
            # What the controller logs comes here as well.
            threading.Thread(target=shutil.copyfileobj, args=(process.stdout, output), daemon=True).start()
            descendants = psutil.Process(process.pid).children(recursive=True)
            executors = [child for child in descendants if _is_executor(child)]
            work_directories = {Path(executor.cwd()).parent for executor in executors}
            # Whoever supervises the racks sees to it that a killed broker comes back.
            yield ClusterUnderTest(
                "sparklog",
                address.group(1),
                executors,
                roots=lambda: [psutil.Process(process.pid)],
                restart=lambda _: None,
                secured=secured,
            )
        logs = [log, *(path for work in work_directories for path in work.glob("*/stderr"))]
        lines = (line for path in logs for line in path.read_text(errors="replace").splitlines())
        print(f"longest stall of an event loop, of brokers and controller: {longest_stall_ms(lines)} ms")


@contextlib.contextmanager
def apache_kafka_cluster(security: Mapping[str, str] = MappingProxyType({})) -> Iterator[ClusterUnderTest]:
    """Start Apache Kafka: three combined controllers and brokers, 1 GB heaps; `security` as above."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-kafka-")))
        ports = free_ports((2 + len(SECURED) + 1) * BROKERS)
        voters = ",".join(f"{node}@127.0.0.1:{ports[BROKERS + node]}" for node in range(BROKERS))
        cluster_id = "benchmarkAAAAAAAAAAAAA"
        for node in range(BROKERS):
            properties = directory / f"{node}.properties"
            client, controller = (f"127.0.0.1:{ports[index]}" for index in (node, BROKERS + node))
            properties.write_text(
                "process.roles=broker,controller\n"
                f"node.id={node}\n"
                f"broker.rack=rack-{node}\n"
                f"controller.quorum.voters={voters}\n"
                f"listeners=PLAINTEXT://{client},CONTROLLER://{controller}\n"
                f"advertised.listeners=PLAINTEXT://{client}\n"
                "controller.listener.names=CONTROLLER\n"
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
                f"log.dirs={directory}/logs-{node}\n"
                "offsets.topic.replication.factor=3\n"
                f"{COMMON_SETTINGS}"
            )
            if security:
                # Later lines count. Its brokers and controllers have to say who they are as well.
                names = ("INSIDE", *SECURED)
                more = {
                    name: f"127.0.0.1:{ports[BROKERS * number + node]}"
                    for number, name in enumerate(names, 2)
                }
                clients = ",".join(
                    f"{name}://{address}" for name, address in {"PLAINTEXT": client, **more}.items()
                )
                protocols = {name: name for name in ("PLAINTEXT", *SECURED)}
                protocols |= dict.fromkeys(("INSIDE", "CONTROLLER"), "SASL_PLAINTEXT")
                with properties.open("a") as file:
                    file.write(
                        _properties(
                            {
                                **security,
                                "listeners": f"{clients},CONTROLLER://{controller}",
                                "advertised.listeners": clients,
                                "inter.broker.listener.name": "INSIDE",
                                "listener.security.protocol.map": ",".join(
                                    f"{name}:{protocol}" for name, protocol in protocols.items()
                                ),
                                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                                "sasl.mechanism.controller.protocol": "PLAIN",
                            }
                        )
                    )
            run_kafka_program("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))

        running: dict[int, subprocess.Popen[str]] = {}

        def start(node: int) -> None:
            log = stack.enter_context((directory / f"{node}.log").open("a"))
            properties = str(directory / f"{node}.properties")
            command = kafka_command("kafka.Kafka", properties, java_options=KAFKA_JVM_OPTIONS)
            # Killed, since a combined node that is asked to stop waits for a quorum that has stopped already.
            running[node] = stack.enter_context(_process(command, log, log, signal.SIGKILL))

        def restart(node: int) -> None:
            running[node].wait(END_TIMEOUT_S)
            time.sleep(BACKOFF.pause_ms(0) / 1000)
            start(node)

        for node in range(BROKERS):
            start(node)
        bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in ports[:BROKERS])
        _wait_for_brokers(bootstrap_servers)
        secured = {
            name: ",".join(f"127.0.0.1:{ports[BROKERS * number + node]}" for node in range(BROKERS))
            for number, name in enumerate(SECURED if security else (), 3)
        }
        yield ClusterUnderTest(
            "Apache Kafka",
            bootstrap_servers,
            (),
            roots=lambda: [psutil.Process(node.pid) for node in running.values()],
            restart=restart,
            secured=secured,
        )


def resident_mib(roots: Iterable[psutil.Process]) -> float:
    """Return the resident memory of processes and all that descend from them."""
    resident_bytes = 0
    for root in roots:
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                resident_bytes += process.memory_info().rss
    return resident_bytes / 2**20


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


@contextlib.contextmanager
def _process(
    command: list[str], errors: object, output: object, end: signal.Signals
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=output, stderr=errors, text=True)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(end)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"{command[0]} did not stop within {END_TIMEOUT_S:.0f} s and is killed", file=sys.stderr)
            process.kill()
            process.wait()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:  # a script of Spark's that has ended meanwhile
        return False


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]


def _wait_for_brokers(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(Exception):
            if len(admin.list_topics(timeout=2).brokers) == BROKERS:
                return
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"Apache Kafka did not start at {bootstrap_servers}")
        time.sleep(0.2)
