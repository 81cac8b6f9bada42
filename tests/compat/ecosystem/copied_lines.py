"""A file's lines that two distributed workers of Kafka Connect bring into a topic, exactly once.

Kafka's own FileStreamSource reads the file. The worker that runs its task is killed, and then the broker that
leads the topic's partition, each while lines come. Offsets are moved back by REST, and reset.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters import free_ports
from tests.cluster import LocalCluster, wait_for
from tests.compat.ecosystem.connect_process import Worker
from tests.compat.ecosystem.reading import committed_values
from tests.compat.librdkafka import create_topic

WAIT_S: Final = 120.0
CONNECTOR: Final = "connectors/lines"
FROM_AGAIN: Final = 100
"""The line at which the task begins again once its offset was changed."""


def copy_lines(cluster: LocalCluster, directory: Path, *, lines: int) -> None:
    """Have three parts of `lines` lines copied, with a kill in the first two, and then some of them again.

    Raises:
        AssertionError: the topic has other lines than the file, or has them in another order.
        ClusterError: something did not come to an end.
    """
    topic = "copied-lines"
    create_topic(cluster.bootstrap_servers, topic, config={"min.insync.replicas": "2"})
    file = _Lines(directory / "lines.txt")

    def copied(count: int) -> bool:
        return len(committed_values(cluster.bootstrap_servers, topic)[0]) >= count

    with _workers(cluster, directory) as workers:
        file.append(lines)
        _ask(workers[0], "POST", "connectors", _connector(topic, file.path))
        _until(lambda: copied(1), "the first lines")
        killed = _running_worker(workers)
        killed.kill()
        (survivor,) = (worker for worker in workers if worker is not killed)
        file.append(lines)
        _until(lambda: copied(lines + 1), "lines after the kill of a worker")
        leader = cluster.leader(topic)
        assert leader is not None
        cluster.kill(leader)
        file.append(lines)
        _until(lambda: copied(3 * lines), "all lines")
        cluster.restart(leader)
        _stop(survivor)
        (offset,) = _ask(survivor, "GET", f"{CONNECTOR}/offsets")["offsets"]
        assert offset == {"partition": {"filename": str(file.path)}, "offset": {"position": file.position()}}
        changed = {**offset, "offset": {"position": file.position(FROM_AGAIN)}}
        _ask(survivor, "PATCH", f"{CONNECTOR}/offsets", {"offsets": [changed]})
        _ask(survivor, "PUT", f"{CONNECTOR}/resume")
        _until(lambda: copied(6 * lines - FROM_AGAIN), "lines from the offset that was set")
        _stop(survivor)
        _ask(survivor, "DELETE", f"{CONNECTOR}/offsets")
        _ask(survivor, "PUT", f"{CONNECTOR}/resume")
        _until(lambda: copied(9 * lines - FROM_AGAIN), "lines from the first one on")
        _ask(survivor, "DELETE", CONNECTOR)
    values = [value.decode() for value in committed_values(cluster.bootstrap_servers, topic)[0]]
    assert values == [*file.lines, *file.lines[FROM_AGAIN:], *file.lines]


class _Lines:
    """A file of lines, no two of which are alike."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def append(self, count: int) -> None:
        """Add lines by one write."""
        first = len(self.lines)
        more = [f"line {number}" for number in range(first, first + count)]
        self.lines += more
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in more))

    def position(self, line: int | None = None) -> int:
        """Return where a line begins, or where the last one ends."""
        return sum(len(each) + 1 for each in self.lines[:line])


@contextlib.contextmanager
def _workers(cluster: LocalCluster, directory: Path) -> Iterator[list[Worker]]:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "connect",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "offset.storage.partitions": "5",
        "key.converter": converter,
        "value.converter": converter,
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        # A killed worker is missed after seconds, and its task goes to another at once.
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(properties, port, directory)) for port in sorted(free_ports(2))]
        for worker in workers:
            _until(worker.serves, "a worker that serves")
        yield workers


def _connector(topic: str, file: Path) -> dict[str, Any]:
    return {
        "name": CONNECTOR.rpartition("/")[2],
        "config": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(file),
            "topic": topic,
            # So little that a part takes several transactions.
            "batch.size": "100",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        },
    }


def _running_worker(workers: list[Worker]) -> Worker:
    """Return the worker that runs the task."""
    by_id = {worker.worker_id: worker for worker in workers}

    def running() -> Worker | None:
        match workers[0].ask("GET", f"{CONNECTOR}/status"):
            case {"tasks": [{"state": "RUNNING", "worker_id": worker_id}]}:
                return by_id[worker_id]
        return None

    return wait_for(running, "a task that runs", WAIT_S)


def _stop(worker: Worker) -> None:
    """Return when the connector has no task any more: offsets can be changed only then."""
    _ask(worker, "PUT", f"{CONNECTOR}/stop")

    def stopped() -> bool:
        status = worker.ask("GET", f"{CONNECTOR}/status")
        return status is not None and status["connector"]["state"] == "STOPPED" and status["tasks"] == []

    _until(stopped, "a connector that is stopped")


def _ask(worker: Worker, method: str, path: str, body: Any = None) -> Any:
    return wait_for(lambda: (worker.ask(method, path, body),), f"{method} {path}", WAIT_S)[0]


def _until(condition: Callable[[], bool], what: str) -> None:
    wait_for(condition, what, WAIT_S)
