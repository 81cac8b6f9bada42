"""State that one of Spark's Python processes keeps from one task, or commit, to the next.

Spark's daemon forks its workers and reuses them, for tasks and for work on the driver; each has one thread.
The state belongs to the process: a fork starts with none.
"""

import gc
import os
import sys
import uuid
from collections.abc import Iterator
from typing import Final

from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.names import SinkId
from sparklog.user.sink.machine.protocols import Decider

_MOST_CLIENTS: Final = 4
_MOST_SINKS: Final = 256


class WorkerProcess:
    def __init__(self) -> None:
        self._name = uuid.uuid4().hex[:16]
        self._clients: dict[ClientConfig, SinkClient] = {}
        self._slots: dict[tuple[SinkId, str], tuple[int, int]] = {}
        """By sink and run: the batch of the last id, and the next slot."""
        self._deciders: dict[tuple[ClientConfig, SinkId, str], Decider] = {}

    def client(self, config: ClientConfig) -> SinkClient:
        client = self._clients.pop(config, None) or SinkClient(ClusterClient(config))
        while len(self._clients) >= _MOST_CLIENTS:  # all that these have asked for is answered
            self._clients.pop(next(iter(self._clients))).cluster.close()
        self._clients[config] = client
        return client

    def drop(self, config: ClientConfig) -> None:
        """Close a client's connections, and take another process name.

        After a failure, answers may be outstanding on them, and requests may still be carried out.
        """
        client = self._clients.pop(config, None)
        if client is not None:
            client.cluster.close()
        self._be_another()

    def has_written(self, sink: SinkId, run_id: str) -> bool:
        """Return whether this process is known to have begun a transaction of a run."""
        return (sink, run_id) in self._slots

    def writer_ids(self, sink: SinkId, run_id: str, batch_id: int) -> Iterator[str]:
        """Yield a `writer_id`, and after each failed initialization one of another process name.

        A late initialization request names no producer, so it can't be recognised as outdated. It would abort
        a later transaction, even the next batch's of the same id.
        """
        while True:
            yield self.writer_id(sink, run_id, batch_id)
            self._be_another()

    def writer_id(self, sink: SinkId, run_id: str, batch_id: int) -> str:
        """Return a transactional id that this process has not used for this batch, nor for a later one.

        A late task must not abort the next batch's prepared transaction.
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
        """Remove and return the decider with which this process last decided; None if there is none."""
        return self._deciders.pop((config, sink, run_id), None)

    def keep_decider(self, config: ClientConfig, sink: SinkId, run_id: str, decider: Decider) -> None:
        while len(self._deciders) >= _MOST_SINKS:
            del self._deciders[next(iter(self._deciders))]
        self._deciders[(config, sink, run_id)] = decider


_by_pid: Final[dict[int, WorkerProcess]] = {}


def this_process() -> WorkerProcess:
    pid = os.getpid()
    if pid not in _by_pid:
        _by_pid.clear()  # of the process that this one was forked from
        _by_pid[pid] = WorkerProcess()
        if _is_forked_by_spark():
            # Spark makes each worker collect garbage after each task, which would visit all imported modules:
            # 10 ms. These stay for the process's life, so they are frozen.
            gc.collect()
            gc.freeze()
    return _by_pid[pid]


def _is_forked_by_spark() -> bool:
    """Whether this is a daemon's fork; elsewhere frozen objects would be a user's, and never collected."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return module is not None and module.name.endswith(".daemon")
