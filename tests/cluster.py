"""A cluster for tests, without Spark: the controller in a thread, brokers as real processes on loopback.

    with LocalCluster(brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)        # SIGKILL, as when an executor dies
        cluster.restart(1)     # the same directory, another process
        cluster.restart_controller()     # another driver, with an empty disk

What it starts it also ends: brokers leave when asked, are killed when they do not, which is an error,
and leave by themselves when the test run dies. Errors show what brokers have logged and what they are at.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.types import BrokerEpoch, BrokerId
from tests.broker_process import TELL_STACKS, BrokerProcess

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
STACKS_TIMEOUT_S = 1.0
POLL_S = 0.02
LOG_TAIL_LINES = 60

Found = TypeVar("Found")


class ClusterError(AssertionError):
    """The cluster did not do what the test waits for; shows the end of the brokers' logs."""


def wait_for(look: Callable[[], Found | None], what: str, timeout_s: float = 45.0) -> Found:
    """Return what `look` finds (anything true) as soon as it does.

    Raises:
        ClusterError: nothing was found within `timeout_s`; `what` says what was looked for.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_S)
    return found


class LocalCluster:
    """`brokers` brokers, each in a rack of its own; broker ids count from 0."""

    running: ClassVar[dict["LocalCluster", None]] = {}
    """The clusters of this process that were started and not stopped."""

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        directories_each: int = 1,
        descriptor_limit: int | None = None,
    ) -> None:
        """Make a cluster; `descriptor_limit` is the RLIMIT_NOFILE of each broker's process."""
        self._descriptor_limit = descriptor_limit
        self.config = dict(config or {})
        self.broker_ids = range(brokers)
        self._temporary = directory is None
        self._directories_each = directories_each
        self.directory = directory or Path(tempfile.mkdtemp(prefix="sparklog-test-"))
        self._processes: dict[BrokerId, BrokerProcess] = {}
        self._former_epochs: dict[BrokerId, BrokerEpoch] = {}
        """Broker epochs of processes before the present ones, as far as they are known."""
        self.broker_config = BrokerConfig.from_mapping(self.config, racks=brokers)
        self.config = dict(self.broker_config.raw)
        self._controllers = 0
        self.controller = self._new_controller()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.logs_with_stacks())
        self.stop()

    def _new_controller(self) -> ControllerServer:
        """Return a controller with an empty directory, which makes what is there its cluster."""
        self._controllers += 1
        return ControllerServer(
            self.broker_config,
            self.directory / f"controller-{self._controllers}",
            secret=ApplicationSecret.new(),
            expected_brokers=[
                ExpectedBroker(broker_id, f"rack-{broker_id}") for broker_id in self.broker_ids
            ],
            new_cluster_id=f"test-{uuid.uuid4().hex[:12]}",
        )

    @property
    def cluster_id(self) -> str:
        """The cluster's id.

        Raises:
            AssertionError: the controller does not lead yet.
        """
        assert self.controller.cluster_id is not None, "no cluster yet"
        return self.controller.cluster_id

    def start(self) -> None:
        """Start controller and brokers; return when every broker is unfenced."""
        self.running[self] = None
        self.controller.start()
        self._start_brokers()

    def _start_brokers(self) -> None:
        if self.broker_config.remote_uri is not None:
            wait_for(self._is_owner, f"the ownership of {self.broker_config.remote_uri}", START_TIMEOUT_S)
        for broker_id in self.broker_ids:
            self.launch(broker_id)
        self.wait_until_unfenced(*self.broker_ids)

    def _is_owner(self) -> bool:
        if self.controller.failure is not None:
            raise self.controller.failure
        return self.controller.owner_epoch is not None

    def restart_controller(self, brokers_end_by: signal.Signals = signal.SIGHUP) -> None:
        """Have another driver, with an empty disk, take the cluster over from the one there is.

        The brokers end as they do with an application's driver, by a signal of Spark's, and start again over
        their directories, to the new driver. Returns when all are unfenced.
        """
        self.begin_new_controller(brokers_end_by)
        self._start_brokers()

    def begin_new_controller(self, brokers_end_by: signal.Signals, *, stop_old: bool = True) -> None:
        """Do the first half of `restart_controller`: no broker runs yet. The old one may be left alive."""
        if stop_old:
            self.controller.stop()
        running = [broker_id for broker_id in self.broker_ids if self.is_running(broker_id)]
        for broker_id in running:
            self._note_epoch(broker_id)
            self.signal(broker_id, brokers_end_by)
        for broker_id in running:
            self.wait_for_exit(broker_id)
        self.controller = self._new_controller()
        self.controller.start()

    def launch(self, broker_id: BrokerId) -> None:
        """Start the process of a broker without waiting for it."""
        self._note_epoch(broker_id)
        host, _, port = self.controller.bootstrap_servers.rpartition(":")
        arguments = {
            "node_id": broker_id,
            "rack": f"rack-{broker_id}",
            "controller_host": host,
            "controller_port": int(port),
            "secret": self.controller.secret,
            "config": self.config,
            "directories": [str(directory) for directory in self.broker_directories(broker_id)],
            "owner_epoch": self.controller.owner_epoch,
            "host_name": "127.0.0.1",
            "namespace": None,
            **self.place(broker_id),
        }
        self._processes[broker_id] = BrokerProcess(
            arguments, self.log_path(broker_id), self._descriptor_limit
        )

    def place(self, broker_id: BrokerId) -> dict[str, str]:
        """Return the host name and the namespace of a broker's process, where not this host's own."""
        return {}

    def add_broker(self) -> BrokerId:
        """Start one broker more, in a rack of its own; return its id when it is unfenced."""
        broker_id = len(self.broker_ids)
        self.broker_ids = range(broker_id + 1)
        assert self.controller.resize(SizeChange(racks=broker_id + 1), START_TIMEOUT_S) is None
        self.launch(broker_id)
        self.wait_until_unfenced(broker_id)
        return broker_id

    def restart(self, broker_id: BrokerId) -> None:
        """Start a killed or stopped broker again in its directory; return when it is unfenced."""
        assert not self.is_running(broker_id), f"broker {broker_id} still runs"
        self.launch(broker_id)
        self.wait_until_unfenced(broker_id)

    def kill(self, broker_id: BrokerId) -> None:
        """SIGKILL a broker; return when the process is gone."""
        self.signal(broker_id, signal.SIGKILL)
        self._processes[broker_id].wait()

    def signal(self, broker_id: BrokerId, number: signal.Signals) -> None:
        """Send a broker a signal."""
        self._processes[broker_id].send_signal(number)

    def wait_for_exit(self, broker_id: BrokerId, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit status of a broker that is about to end."""
        try:
            return self._processes[broker_id].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"broker {broker_id} still runs after {timeout_s} s\n{self.log_with_stacks(broker_id)}"
            ) from None

    def stop_broker(self, broker_id: BrokerId) -> int:
        """Have a broker leave by controlled shutdown; return its exit status."""
        self.signal(broker_id, signal.SIGTERM)
        return self.wait_for_exit(broker_id)

    def copy_all(self, timeout_ms: int = 60_000) -> None:
        """Have the controller copy all to the object store, as the first part of an orderly stop."""
        self.controller.stop_in_order(timeout_ms)
        wait_for(lambda: self.controller.is_copied, "the end of the copies", timeout_ms / 1_000 + 30)

    def stop(self) -> None:
        """End everything and remove the temporary directory; safe to call twice.

        Raises:
            ClusterError: a broker had to be killed.
        """
        self.running.pop(self, None)
        killed: list[str] = []
        with contextlib.suppress(RuntimeError):
            self.controller.shut_down_brokers()
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for broker_id, process in self._processes.items():
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                killed.append(self.log_with_stacks(broker_id))
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.controller.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        if killed:
            raise ClusterError("\n".join([f"not ended within {STOP_TIMEOUT_S} s of SIGTERM", *killed]))

    def is_running(self, broker_id: BrokerId) -> bool:
        """Whether the broker's process is there."""
        process = self._processes.get(broker_id)
        return process is not None and process.poll() is None

    def process_ids(self) -> list[int]:
        """Return the process ids of the brokers that run."""
        return [self.process_id(broker_id) for broker_id in self.broker_ids if self.is_running(broker_id)]

    def process_id(self, broker_id: BrokerId) -> int:
        """Return the broker's process id."""
        return self._processes[broker_id].pid

    @property
    def image(self) -> MetadataImage:
        """The controller's image of the cluster."""
        return self.controller.image

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the unfenced brokers, as clients take them."""
        return ",".join(
            f"{endpoint.host}:{endpoint.port}"
            for broker in self.image.brokers.values()
            if not broker.fenced
            for endpoint in broker.listeners
        )

    def address(self, broker_id: BrokerId) -> tuple[str, int]:
        """Return where a broker listens."""
        endpoint = self.image.brokers[broker_id].listeners[0]
        return endpoint.host, endpoint.port

    def leader(self, topic: str, partition: int = 0) -> BrokerId | None:
        """Return who leads a partition, None for nobody.

        Raises:
            KeyError: the controller does not know the partition.
        """
        return self.image.topics.by_name[topic].partitions[partition].leader

    def in_sync(self, topic: str, partition: int = 0) -> set[BrokerId]:
        """Return the partition's ISR."""
        return set(self.image.topics.by_name[topic].partitions[partition].isr)

    def broker_directory(self, broker_id: BrokerId) -> Path:
        """Return the broker's data directory."""
        return self.directory / f"broker-{broker_id}"

    def broker_directories(self, broker_id: BrokerId) -> list[Path]:
        """Return all data directories of the broker; the first has the metadata log."""
        first = self.broker_directory(broker_id)
        more = [first.with_name(f"{first.name}-{number}") for number in range(1, self._directories_each)]
        return [first, *more]

    def log_path(self, broker_id: BrokerId) -> Path:
        """Return the file that has what the broker wrote to stdout and stderr."""
        return self.directory / f"broker-{broker_id}.log"

    def log_tail(self, broker_id: BrokerId) -> str:
        """Return the end of what the broker logged."""
        path = self.log_path(broker_id)
        if not path.exists():
            return ""
        lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"--- broker {broker_id} ---", *lines])

    def logs_with_stacks(self) -> str:
        """Return `log_with_stacks` of all brokers."""
        return "\n".join(map(self.log_with_stacks, self.broker_ids))

    def log_with_stacks(self, broker_id: BrokerId) -> str:
        """Return the end of what the broker logged, and behind it what each of its threads is at."""
        tail = self.log_tail(broker_id)
        if not self.is_running(broker_id):
            return tail
        with self.log_path(broker_id).open(errors="replace") as log:
            log.seek(0, os.SEEK_END)
            self.signal(broker_id, TELL_STACKS)
            stacks = ""
            deadline = time.monotonic() + STACKS_TIMEOUT_S
            while (more := log.read()) or (not stacks and time.monotonic() < deadline):
                stacks += more
                time.sleep(POLL_S)
        return "\n".join([tail, f"--- stacks of broker {broker_id} ---", stacks or "none: it is stopped"])

    def wait_until_unfenced(self, *broker_ids: BrokerId) -> None:
        """Return when the present processes of these brokers serve, and tell clients of all of them.

        Raises:
            ClusterError: one ended, or the time was not enough.
        """

        def all_up() -> bool:
            for broker_id in broker_ids:
                if not self.is_running(broker_id):
                    raise ClusterError(f"broker {broker_id} ended\n{self.log_tail(broker_id)}")
            if self.controller.failure is not None:
                raise ClusterError(f"the controller ended: {self.controller.failure}")
            brokers = self.image.brokers
            return all(
                broker_id in brokers and not brokers[broker_id].fenced and self._has_registered(broker_id)
                for broker_id in broker_ids
            ) and self.controller.know_each_other(broker_ids)

        try:
            wait_for(all_up, f"brokers {broker_ids} unfenced", START_TIMEOUT_S)
        except ClusterError as error:
            tails = "\n".join(self.log_tail(broker_id) for broker_id in broker_ids)
            raise ClusterError(f"{error}\n{self.controller.missing or ''}\n{tails}") from None

    def _note_epoch(self, broker_id: BrokerId) -> None:
        if (registration := self.image.brokers.get(broker_id)) is not None:
            self._former_epochs[broker_id] = registration.broker_epoch

    def _has_registered(self, broker_id: BrokerId) -> bool:
        """Whether the registration is that of the present process; its port may be the former one's."""
        return self.image.brokers[broker_id].broker_epoch != self._former_epochs.get(broker_id)
