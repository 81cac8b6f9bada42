"""The interface of a job of log maintenance, and its view of the broker's logs.

A job runs on one directory at a time, and on several in parallel. It changes a log on the loop, in slices
(`HostedLogs.on`), and runs blocking work in a thread (`HostedLogs.run_in_thread`); there is a thread for
every run. So a disk that takes long, or for ever, delays this job on this directory and nothing else. A run
leaves no state that the next one needs to be correct: any run may be the last, or fail.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from sparklog.executor.fetching.tiered_ends import TieredReplica
from sparklog.executor.loop.slices import in_slices
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import Offset, TopicPartition

_Result = TypeVar("_Result")


class UpkeepJob(Protocol):
    """Periodic maintenance of logs, as Kafka's LogManager schedules it."""

    name: str
    """Kafka's name of the task, for the log."""
    interval_ms: int
    is_due_at_start: bool
    """Whether the first run is at once, not after an interval."""

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        """Run in a directory that is online. `now_ms` is the loop's monotonic time.

        An error is logged, and the job runs again after its interval.
        """


class FlushSettings(Protocol):
    """The part of a topic's configuration that logs themselves do not handle."""

    @property
    def flush_ms(self) -> int | None:
        """How long records may stay unflushed; None for any time."""


class HostedLog(Protocol):
    """A log with checkpoints: that of a replica, or its copy in another directory."""

    topic_partition: TopicPartition
    offline: bool

    @property
    def log(self) -> Log: ...

    @property
    def high_watermark(self) -> Offset: ...


class HostedReplica(HostedLog, TieredReplica, Protocol):
    @property
    def future(self) -> HostedLog | None:
        """The copy of its log in another directory, if it is being moved."""

    @property
    def settings(self) -> FlushSettings: ...

    def fail_if_storage(self, error: BaseException) -> None: ...

    def log_start_offset_moved(self) -> None: ...


class HostedReplicas(Protocol):
    """All replicas of a broker; any of them may be removed during an iteration."""

    def __iter__(self) -> Iterator[HostedReplica]: ...

    def __contains__(self, replica: Any) -> bool: ...


class HostedLogs:
    """The replicas of one broker by the directories of their logs, and threads for work on them."""

    def __init__(self, replicas: HostedReplicas, *, threads: int) -> None:
        self.is_stopping = False
        """Set once: a run leaves its remaining work to the next start."""
        self._replicas = replicas
        self._executor = ThreadPoolExecutor(threads, "sparklog-upkeep")

    def __contains__(self, replica: HostedReplica) -> bool:
        """Whether this is still the replica of its partition, and its log is usable.

        Check it again after every await: between two slices, after work in a thread.
        """
        return replica in self._replicas and not replica.offline

    async def on(self, directory: LogDirectory) -> AsyncIterator[Sequence[HostedReplica]]:
        """Yield the replicas with logs in the directory, in slices, between which the loop turns.

        Without those whose logs have no files yet: nothing in them can be flushed, deleted or cleaned.
        """
        parent = str(directory.path)
        async for part in in_slices(self._replicas):
            yield [
                replica
                for replica in part
                if replica.log.has_files and replica.log.parent == parent and not replica.offline
            ]

    async def all_on(self, directory: LogDirectory) -> AsyncIterator[Sequence[HostedLog]]:
        """Yield the logs of a directory's checkpoints, in slices: replicas, and copies under way."""
        parent = str(directory.path)
        async for part in in_slices(self._replicas):
            logs: list[HostedLog] = [replica for replica in part if replica in self._replicas]
            logs += [replica.future for replica in part if replica.future is not None]
            yield [hosted for hosted in logs if hosted.log.parent == parent and not hosted.offline]

    async def run_in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run blocking work in a thread; return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._executor.shutdown(wait=False)
