"""What one of Spark's Python processes keeps from one task, or commit, to the next.

Spark's daemon forks its workers and uses them again, for tasks and for what is done on the driver; each has
one thread. All is tied to the process: a fork begins anew.
"""

import gc
import os
import uuid
from collections.abc import Iterator
from typing import Final

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.config import ClientConfig
from sparklog.sink.client import SinkClient
from sparklog.sink.machine.names import SinkId
from sparklog.sink.machine.protocols import Decider

_MOST_CLIENTS: Final = 4
_MOST_SINKS: Final = 256


class WorkerProcess:
    """This process."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex[:16]
        self._clients: dict[ClientConfig, SinkClient] = {}
        self._slots: dict[tuple[SinkId, str], tuple[int, int]] = {}
        """By sink and run: of which batch, and which is the next."""
        self._deciders: dict[tuple[ClientConfig, SinkId, str], Decider] = {}

    def client(self, config: ClientConfig) -> SinkClient:
        """Return the client of a cluster, with the connections that it has."""
        client = self._clients.pop(config, None) or SinkClient(ClusterClient(config))
        while len(self._clients) >= _MOST_CLIENTS:  # all that these have asked for is answered
            self._clients.pop(next(iter(self._clients))).cluster.close()
        self._clients[config] = client
        return client

    def drop(self, config: ClientConfig) -> None:
        """Close a client's connections, and be another process.

        After a failure answers may be outstanding on them, and what was asked may still come to be done.
        """
        client = self._clients.pop(config, None)
        if client is not None:
            client.cluster.close()
        self._be_another()

    def has_written(self, sink: SinkId, run_id: str) -> bool:
        """Return whether this process is known to have begun a transaction of a run."""
        return (sink, run_id) in self._slots

    def writer_ids(self, sink: SinkId, run_id: str, batch_id: int) -> Iterator[str]:
        """Yield a `writer_id`, and another process's each time that the one before was asked for in vain.

        A request to initialize it that comes late names no producer, so nobody can tell that it is old. It
        would abort what was written meanwhile, also with the next batch's same id.
        """
        while True:
            yield self.writer_id(sink, run_id, batch_id)
            self._be_another()

    def writer_id(self, sink: SinkId, run_id: str, batch_id: int) -> str:
        """Return a transactional id that this process has not used for this batch, nor for a later one.

        A task that comes late must not abort what the next batch has prepared.
        """
        used_for, slot = self._slots.pop((sink, run_id), (batch_id, 0))
        if batch_id > used_for:
            used_for, slot = batch_id, 0
        if len(self._slots) >= _MOST_SINKS:  # what was used is not known any more
            self._be_another()
        self._slots[(sink, run_id)] = (used_for, slot + 1)
        return sink.writer_id(run_id, self._name, slot)

    def _be_another(self) -> None:
        self._slots.clear()
        self._name = uuid.uuid4().hex[:16]

    def decider(self, config: ClientConfig, sink: SinkId, run_id: str) -> Decider | None:
        """Return as whom this process decided last; taken, until it is kept again."""
        return self._deciders.pop((config, sink, run_id), None)

    def keep_decider(self, config: ClientConfig, sink: SinkId, run_id: str, decider: Decider) -> None:
        """Decide as this one next time."""
        while len(self._deciders) >= _MOST_SINKS:
            del self._deciders[next(iter(self._deciders))]
        self._deciders[(config, sink, run_id)] = decider


_by_pid: Final[dict[int, WorkerProcess]] = {}


def this_process() -> WorkerProcess:
    """Return what this process keeps."""
    pid = os.getpid()
    if pid not in _by_pid:
        _by_pid.clear()  # of the process that this one was forked from
        _by_pid[pid] = WorkerProcess()
        # Spark has each worker collect garbage after each task, through all that was ever imported: 10 ms.
        # What is there now stays for the process's life.
        gc.collect()
        gc.freeze()
    return _by_pid[pid]
