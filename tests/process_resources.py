"""What processes hold: descriptors, threads and memory; counted around a test, so that what grew is found.

    with nothing_grows(request.session):
        ...

Counted are this process, which has the clients and the controller, and the brokers of clusters that were
there before and live on. What may grow has a bound of its own: the files of partitions that there are,
connections of the members among themselves, pools of threads, what an allocator keeps. Clients let go
in threads of their own, and brokers when they notice; so what has grown is looked at again until it is
gone, or the time is up.
"""

import contextlib
import gc
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sparklog.protocol.types import CLUSTER_METADATA_TOPIC
from tests.cluster import LocalCluster

PATIENCE_S: Final = 15.0
POLL_S: Final = 0.05
MEMBERS: Final = "connections among the cluster's members"
MOST_MEMBER_CONNECTIONS: Final = 24
"""Of one broker or controller: each broker fetches from each other one, and has six to the controller."""
TO_A_MEMBER: Final = "connection to a broker or controller"
OF_A_CLIENT: Final = "connection of a client"
MEMORY_FILES: Final = "/memfd"
"""Row groups of the tier in memory, bounded by sparklog.remote.cache.bytes."""
MOST_MEMORY_FILES: Final = 16
BEING_WRITTEN: Final = "file that replaces another once it is on the disk"
"""Checkpoints are written every few seconds, and a busy disk takes its time for each."""
BEING_WRITTEN_SUFFIX: Final = ".tmp"
MOST_BEING_WRITTEN: Final = 4
TO_A_DECODER: Final = "connection to a decoder"
"""Of a broker: to the process that decodes the tier's row groups, from the first read of the tier on."""
SEQUENCED_PACKETS: Final = "0005"
"""The type of such sockets in /proc/net/unix; nothing else here has them."""
FEW_DESCRIPTORS: Final = 32
"""Usual number in a process that runs tests and has a cluster for many of them."""
BOUNDS: Final = {
    MEMBERS: MOST_MEMBER_CONNECTIONS,
    TO_A_MEMBER: 1,
    OF_A_CLIENT: 1,
    MEMORY_FILES: MOST_MEMORY_FILES,
    BEING_WRITTEN: MOST_BEING_WRITTEN,
    TO_A_DECODER: 1,
}
"""What may be there after a test even if it was not before; the one is the controller's."""
EXECUTOR_THREADS: Final = (os.cpu_count() or 1) + 4
"""The most that asyncio's own pool has."""
RUNTIME: Final = "tokio-rt-worker"
"""The name of obstore's threads. Those that stay there are one a processor; others end once idle for 10 s."""
RUNTIME_THREADS: Final = (os.cpu_count() or 1) + 4
UPKEEP_THREADS: Final = 5
"""What the logs' upkeep has for each data directory."""
OTHER_THREADS: Final = 4
"""A broker's main thread, its watchdog's, and what native libraries begin with."""
MEMORY_BYTES: Final = 32 << 20
"""What a broker's allocator may keep of a test's largest requests, and new partitions may take."""
TIER_BYTES: Final = 64 << 20
"""Of a broker with a tier: Parquet's library, its buffers, and the cache of row groups."""
TIER_THREADS: Final = 7
"""Those that copy, that read, and of a directory as the store."""
LOADED_BYTES: Final = 80 << 20
"""What a broker has once it was asked everything; schemas are loaded when they are needed first."""
POOLED: Final = re.compile(r"_\d+$")
"""How concurrent.futures ends the names of its threads."""
METADATA_LOG: Final = f"{CLUSTER_METADATA_TOPIC}-"
"""How the name of the metadata log's directory begins."""


class Held(NamedTuple):
    """What one process has."""

    descriptors: Counter[str]
    threads: Counter[str]
    memory_bytes: int


class Survivors:
    """The objects of earlier tests, which collections leave out: looking at them takes most of their time.

    A client of theirs that becomes a cycle later would stay open for good. So they are looked at again
    whenever twice as many descriptors are open as the last look has left.
    """

    def __init__(self) -> None:
        self._left_open = FEW_DESCRIPTORS

    def set_aside(self) -> None:
        """Collect garbage, and leave what survives out of the collections from now on."""
        gc.collect()
        if len(_descriptors(os.getpid())) >= 2 * self._left_open:
            gc.unfreeze()
            gc.collect()
            self._left_open = max(len(_descriptors(os.getpid())), FEW_DESCRIPTORS)
        gc.freeze()


_SURVIVORS: Final = Survivors()


class GrowthError(AssertionError):
    """Something is still held when whoever needed it is gone; says what, and by whom."""


@contextlib.contextmanager
def nothing_grows(session: pytest.Session) -> Iterator[None]:
    """Fail if this process, or a broker that was there before and still is, holds more than it did.

    A test that has failed is not looked at: its traceback holds its clients, and they their connections.

    Raises:
        GrowthError: after `PATIENCE_S`.
    """
    clusters, failed = tuple(LocalCluster.running), session.testsfailed
    _SURVIVORS.set_aside()
    before = _look(clusters)
    yield
    if session.testsfailed > failed:
        return
    deadline_s = time.monotonic() + PATIENCE_S
    while growth := _growth(clusters, before):
        if time.monotonic() > deadline_s:
            raise GrowthError("\n".join(growth))
        gc.collect()
        time.sleep(POLL_S)


def let_go(records: Iterable[logging.LogRecord]) -> None:
    """Leave only the text of log records: errors in them hold whole calls, with all that those had open."""
    for record in records:
        record.msg, record.args, record.exc_info = record.getMessage(), None, None


def _look(clusters: tuple[LocalCluster, ...]) -> dict[int, Held]:
    """Return what this process and the clusters' brokers hold, by process."""
    processes = {os.getpid(), *(process for cluster in clusters for process in cluster.process_ids())}
    connections = _connections()
    descriptors = {process: _descriptors(process) for process in processes}
    listening = {port for cluster in clusters for port in _listening_ports(cluster)}
    members = _Members(clusters, listening, connections, descriptors)
    held = {}
    for process, targets in descriptors.items():
        with contextlib.suppress(FileNotFoundError):  # it has ended
            held[process] = Held(members.count(process, targets), _threads(process), _memory_bytes(process))
    return held


def _growth(clusters: tuple[LocalCluster, ...], before: Mapping[int, Held]) -> list[str]:
    """Return a line for each thing of which there is more than before, beyond its bound."""
    lines = []
    for process, now in _look(clusters).items():
        if process not in before:
            continue
        own, then = process == os.getpid(), before[process]
        who = "this process" if own else f"broker process {process}"
        members = max(len(clusters), 1) if own else 1  # a controller of each cluster is here
        for name, count in (now.descriptors - then.descriptors).items():
            kind = name.partition(":")[0]
            if now.descriptors[name] > BOUNDS.get(kind, 0) * (members if kind == MEMBERS else 1):
                lines.append(f"{who} has {count} more descriptors: {name}")
        threads = now.threads - then.threads
        if own:
            # The controller of a cluster that lives on has asyncio's pool.
            pooled = Counter({name: count for name, count in threads.items() if POOLED.search(name)})
            if clusters and pooled.total() <= EXECUTOR_THREADS:
                threads -= pooled
            if now.threads[RUNTIME] <= RUNTIME_THREADS:
                del threads[RUNTIME]
            lines += [f"{who} has {count} more threads: {name}" for name, count in threads.items()]
        else:
            most = EXECUTOR_THREADS + OTHER_THREADS + _background_threads(clusters, process)
            if threads and now.threads.total() > most:
                lines.append(f"{who} has {now.threads.total()} threads, with all its pools at most {most}")
            grown_bytes = now.memory_bytes - max(then.memory_bytes, LOADED_BYTES)
            if grown_bytes > MEMORY_BYTES + (TIER_BYTES if _is_tiered(clusters, process) else 0):
                lines.append(
                    f"{who} has {grown_bytes >> 20} MiB more memory, {now.memory_bytes >> 20} in all"
                )
    return lines


def _sockets_of_packets() -> frozenset[str]:
    """Return the sockets by which brokers speak with their decoders, as descriptors name them."""
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return frozenset(f"socket:[{row[6]}]" for row in rows if row[4] == SEQUENCED_PACKETS)


class _Members:
    """Which files and connections clusters have for themselves."""

    def __init__(
        self,
        clusters: tuple[LocalCluster, ...],
        listening: set[int],
        connections: Mapping[str, tuple[int, int]],
        descriptors: Mapping[int, list[str]],
    ) -> None:
        self._listening = listening
        self._connections = connections
        self._to_decoders = _sockets_of_packets()
        self._broker_ports = {
            connections[target][0]
            for process, targets in descriptors.items()
            if process != os.getpid()
            for target in targets
            if target in connections
        }
        self._partition_directories = {
            f"{topic.name}-{number}"
            for cluster in clusters
            for topic in cluster.image.topics.by_id.values()
            for number in topic.partitions
        }
        self._directories = tuple(str(cluster.directory) for cluster in clusters)

    def count(self, process: int, targets: Iterable[str]) -> Counter[str]:
        """Return how many descriptors of each name a process has."""
        names = (self._name_of(process, target) for target in targets)
        return Counter(name for name in names if name is not None and not name.startswith("/proc/"))

    def _name_of(self, process: int, target: str) -> str | None:
        """Return what to count a descriptor as; None if it is a file of a partition that there is."""
        if target.startswith("socket:"):
            ports = self._connections.get(target)
            if target in self._to_decoders:
                return TO_A_DECODER
            return "socket" if ports is None else self._name_of_connection(process, *ports)
        if target.startswith(("pipe:", "anon_inode:")):
            return target.partition("[")[0] if target.startswith("pipe:") else target
        if target.startswith(self._directories or ("\0",)) and target.endswith(BEING_WRITTEN_SUFFIX):
            return BEING_WRITTEN
        return None if self._is_a_partitions(target) else target

    def _name_of_connection(self, process: int, local: int, remote: int) -> str:
        own = process == os.getpid()
        if own and remote in self._listening:
            return f"{TO_A_MEMBER}: port {remote}"
        if local in self._listening and remote not in self._broker_ports:
            return f"{OF_A_CLIENT}: port {local}"
        return MEMBERS if self._listening else "connection"

    def _is_a_partitions(self, target: str) -> bool:
        if target.endswith(" (deleted)") or not target.startswith(self._directories or ("\0",)):
            return False
        directory = target.rpartition("/")[0].rpartition("/")[2]
        return directory in self._partition_directories or directory.startswith(METADATA_LOG)


def _descriptors(process: int) -> list[str]:
    """Return what the process's descriptors are, as /proc says; nothing if it has ended."""
    targets = []
    # Not by way of Path: the brokers that tests share have a thousand descriptors each, and every test has
    # them listed three times or more.
    with contextlib.suppress(FileNotFoundError), os.scandir(f"/proc/{process}/fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile, such as this listing's own
                targets.append(os.readlink(descriptor.path))  # noqa: PTH115
    return targets


def _threads(process: int) -> Counter[str]:
    """Return the names of threads: Python's own here, native ones as the kernel knows them."""
    names: Counter[str] = Counter()
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            name = (task / "comm").read_text().strip()
            names[python.get(int(task.name), name) if process == os.getpid() else name] += 1
    return names


def _memory_bytes(process: int) -> int:
    """Return the memory that is the process's own; mapped files are the page cache's."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"^RssAnon:\s*(\d+) kB$", status, re.MULTILINE)
    return 0 if found is None else int(found[1]) << 10


def _connections() -> dict[str, tuple[int, int]]:
    """Return local and remote port of each TCP connection of the machine, by what its descriptors are.

    Read once for all processes: the kernel goes through all of its connections, whoever asks.
    """
    found = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # there is no IPv6
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, remote, _, _, _, _, _, _, inode, *_ = line.split(maxsplit=10)
                if inode == "0":  # closed by its process, and remembered for a while
                    continue
                local_port, remote_port = (int(end.rpartition(":")[2], 16) for end in (local, remote))
                if remote_port:  # else it listens
                    found[f"socket:[{inode}]"] = local_port, remote_port
    return found


def _listening_ports(cluster: LocalCluster) -> Iterator[int]:
    yield int(cluster.controller.bootstrap_servers.rpartition(":")[2])
    for broker in cluster.image.brokers.values():
        yield from (endpoint.port for endpoint in broker.listeners)


def _background_threads(clusters: tuple[LocalCluster, ...], process: int) -> int:
    cluster = _cluster_of(clusters, process)
    directories = len(cluster.broker_directories(cluster.broker_ids[0]))
    of_tier = TIER_THREADS if _is_tiered(clusters, process) else 0
    return cluster.broker_config.background_threads + UPKEEP_THREADS * directories + of_tier


def _is_tiered(clusters: tuple[LocalCluster, ...], process: int) -> bool:
    return _cluster_of(clusters, process).broker_config.remote_uri is not None


def _cluster_of(clusters: tuple[LocalCluster, ...], process: int) -> LocalCluster:
    (cluster,) = (cluster for cluster in clusters if process in cluster.process_ids())
    return cluster
