"""The cluster as its users run it: spark-submit of jobs/serve.py, and a supervisor that starts it again.

The driver is a process of its own, so that it can be killed; executors are those of a local cluster. The
supervisor does what systemd's Restart=always or Spark's --supervise do: when the application ends without
having been told to, it is started again, over the same directories and at the same address.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import pyspark
from kio.schema.metadata.v13.request import MetadataRequest

from benchmarks.class_archive.archive import SHORT_LIVED
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.errors import KafkaError
from tests.chaos.reaper import MARK, processes_of

REPOSITORY: Final = Path(__file__).parents[2]
SPARK_HOME: Final = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
DISCOVERY_SCRIPT: Final = REPOSITORY / "conf" / "discover-broker.sh"
BROKERS: Final = 3
RESTART_DELAY_S: Final = 0.1
"""systemd's default."""
STARTS_IN_VAIN: Final = 3
"""An application that ends this often in a row without having served will not serve."""
START_TIMEOUT_S: Final = 240.0
STOP_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.05
DIRECTORIES: Final = ("data", "scratch")
"""Where all of it is that its processes have written."""
LOG_TAIL_LINES: Final = 40
PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives to whoever connects: one that is free stays so while the driver is down."""


class ApplicationError(Exception):
    """The application does not run; shows the end of its log."""


class Application:
    """A cluster of three brokers under supervision; a context manager that starts and stops it."""

    def __init__(
        self, run: str, directory: Path, config: Mapping[str, str], *, executors: int = BROKERS
    ) -> None:
        """`run` marks its processes; everything that they write lies in `directory`."""
        self._executors = executors
        self.bootstrap_servers = f"127.0.0.1:{free_port()}"
        self.log_path = directory / "application.log"
        self.run = run
        self.starts = 0
        self.directory: Final = directory
        self._config = {
            "controller.quorum.bootstrap.servers": self.bootstrap_servers,
            "log.dirs": str(self.data_directory),
            **config,
        }
        self._properties = directory / "broker.properties"
        self._stopping = threading.Event()
        self._serving = threading.Event()
        self._may_start = threading.Event()
        self._may_start.set()
        self._failure: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    @property
    def data_directory(self) -> Path:
        """Where the brokers' directories lie, `broker-0` and so on."""
        return self.directory / "data"

    def __enter__(self) -> Self:
        """Return when the cluster serves."""
        for name in DIRECTORIES:
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._config.items()))
        self._supervisor.start()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._serving.wait(POLL_S):
            if self._failure is not None or time.monotonic() > deadline_s:
                self._end()
                raise ApplicationError(f"{self._failure or 'the cluster did not start'}\n{self.log_tail()}")
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def check(self) -> None:
        """Raise if the supervisor has given up.

        Raises:
            ApplicationError: with the end of the log.
        """
        if self._failure is not None:
            raise ApplicationError(f"{self._failure}\n{self.log_tail()}")

    def driver_jvm(self) -> psutil.Process:
        """Return the JVM that is Spark's driver."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def driver_python(self) -> psutil.Process:
        """Return the driver's Python, with which the controller ends."""
        (python,) = (
            child
            for child in self.driver_jvm().children()
            if any(argument.endswith("serve.py") for argument in _arguments(child))
        )
        return python

    def controller(self) -> psutil.Process | None:
        """Return the controller's process; None while the driver's Python has none."""
        for child in self.driver_python().children():
            if any("sparklog.driver.process" in argument for argument in _arguments(child)):
                return child
        return None

    def executors(self) -> list[psutil.Process]:
        """Return the executors' JVMs that run now."""
        return [
            child
            for child in self.driver_jvm().children(recursive=True)
            if any("CoarseGrainedExecutorBackend" in argument for argument in _arguments(child))
        ]

    def signal_driver(self, number: signal.Signals) -> None:
        """Send the driver a signal; once it has ended it is not started until `start_with_empty_disks`."""
        assert self._process is not None
        self._may_start.clear()
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL all processes; they are not started until `start_with_empty_disks`."""
        self.signal_driver(signal.SIGKILL)
        while processes := processes_of(self.run):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def wait_until_ended(self, timeout_s: float) -> None:
        """Return when none of its processes is there.

        Raises:
            ApplicationError: one still is, after that time.
        """
        deadline_s = time.monotonic() + timeout_s
        while left := processes_of(self.run):
            if time.monotonic() > deadline_s:
                raise ApplicationError(f"processes {left} still run after {timeout_s} s\n{self.log_tail()}")
            time.sleep(POLL_S)

    def start_with_empty_disks(self) -> None:
        """Start the application that has ended again, as a supervisor does on other machines."""
        for name in DIRECTORIES:
            shutil.rmtree(self.directory / name)
            (self.directory / name).mkdir()
        self._may_start.set()

    def is_answered(self) -> bool:
        """Whether a controller that leads answers at the address."""
        host, _, port = self.bootstrap_servers.rpartition(":")
        every_topic = MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        try:
            with BlockingChannel(host, int(port), "chaos", timeout_s=ANSWER_TIMEOUT_S) as channel:
                channel.request(every_topic)
        except KafkaError:
            return False
        return True

    def log_tail(self) -> str:
        """Return the end of what the driver logged, without Java's stack traces."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
        return "\n".join([f"--- {self.log_path} ---", *lines[-LOG_TAIL_LINES:]])

    def _end(self) -> None:
        self._stopping.set()
        self._may_start.set()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._supervisor.join(STOP_TIMEOUT_S)

    def _supervise(self) -> None:
        in_vain = 0
        while not self._stopping.is_set():
            self.starts += 1
            served = self._serve_once()
            if self._stopping.wait(RESTART_DELAY_S):
                return
            self._may_start.wait()
            in_vain = 0 if served else in_vain + 1
            if in_vain == STARTS_IN_VAIN or not self._serving.is_set():
                self._failure = f"the application ended {in_vain} times in a row before it served"
                return

    def _serve_once(self) -> bool:
        """Run the application until it ends; return whether it has served."""
        served = False
        with self.log_path.open("a") as log:
            log.write(f"=== start {self.starts} ===\n")
            log.flush()
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.directory,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            assert self._process.stdout is not None
            # spark-submit merges what the driver's Python logs into its own standard output.
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if re.match(r"bootstrap\.servers=\S+", line):
                    served = True
                    self._serving.set()
            self._process.wait()
            log.write(f"=== ended with status {self._process.returncode} ===\n")
        return served

    def _command(self) -> list[str]:
        scratch = self.directory / "scratch"
        properties = {
            "spark.master": f"local-cluster[{self._executors},2,512]",
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Djava.io.tmpdir={scratch}",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(scratch),
            "spark.decommission.enabled": "true",
            # A standalone Master gives up an application whose executors are killed too often.
            "spark.deploy.maxExecutorRetries": "-1",
            **{
                f"spark.{who}.resource.broker.{what}": value
                for who in ("executor", "worker")
                for what, value in (("amount", "1"), ("discoveryScript", str(DISCOVERY_SCRIPT)))
            },
        }
        return [
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--properties-file", spark_properties_file()),
            *(part for key, value in properties.items() for part in ("--conf", f"{key}={value}")),
            str(REPOSITORY / "jobs" / "serve.py"),
            str(self._properties),
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            MARK: self.run,
            # A process that crashes leaves its stacks in its log.
            "PYTHONFAULTHANDLER": "1",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            "TMPDIR": str(self.directory / "scratch"),
        }


def spark_properties_file() -> str:
    """Return what make has Spark's JVMs begin with: the archive of their classes, if it was made."""
    return os.environ.get("SPARK_PROPERTIES_FILE") or str(REPOSITORY / "conf" / "spark-defaults.conf")


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return []


def free_port() -> int:
    """Return a port that nobody listens at, and that nobody is given who connects to somewhere."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
