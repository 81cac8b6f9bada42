"""What a job of the logs' upkeep is, and what it sees of the broker's logs.

A job runs on one directory at a time, and on several side by side. What it changes of a log it changes on the
loop, in slices (`HostedLogs.on`); what blocks it has done beside it (`HostedLogs.beside_loop`), where every
run has a thread if it wants one. So a disk that takes long, or for ever, delays this job on this directory
and nothing else. A job holds no state of a run that the next one needs to be sound: any run may be the last,
or fail.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from sparklog.executor.loop.slices import in_slices
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import Offset, TopicPartition

_Result = TypeVar("_Result")


class UpkeepJob(Protocol):
    """Something that logs need from time to time; Kafka's LogManager schedules the same."""

    name: str
    """As Kafka calls the task, for the log."""
    interval_ms: int
    is_due_at_start: bool
    """Whether the first run is due at once, not after an interval."""

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        """Do what is due in a directory that is online. `now_ms` is the loop's monotonic time.

        Whatever it raises is logged, and it is run again after its interval.
        """


class FlushSettings(Protocol):
    """What of a topic's configuration only the broker obeys."""

    @property
    def flush_ms(self) -> int | None:
        """How long something may stay unflushed; None for any time."""


class HostedLog(Protocol):
    """What a checkpoint tells of: a replica, or the copy that is made of one in another directory."""

    topic_partition: TopicPartition
    offline: bool

    @property
    def log(self) -> Log:
        """Where it lies."""

    @property
    def high_watermark(self) -> Offset:
        """Up to where records are known here to be committed."""


class HostedReplica(HostedLog, Protocol):
    """What the upkeep sees of a replica."""

    @property
    def future(self) -> HostedLog | None:
        """The copy under way of its log, in another directory."""

    @property
    def leader(self) -> object | None:
        """The machine of the partition's leader, if this is it."""

    @property
    def settings(self) -> FlushSettings:
        """Of its topic."""

    def fail_if_storage(self, error: BaseException) -> None:
        """Something that was done to its log failed."""

    def log_start_offset_moved(self) -> None:
        """Records of it have gone."""


class HostedReplicas(Protocol):
    """All of a broker; any of them may go while a job looks through them."""

    def __iter__(self) -> Iterator[HostedReplica]:
        """Iterate over them."""

    def __contains__(self, replica: Any) -> bool:
        """Whether this is still the replica of its partition."""


class HostedLogs:
    """The replicas of one broker by the directories in which their logs lie, and threads to work on them."""

    def __init__(self, replicas: HostedReplicas, *, threads: int) -> None:
        self.is_stopping = False
        """Set once: a run that has more to do leaves it to the next start."""
        self._replicas = replicas
        self._executor = ThreadPoolExecutor(threads, "sparklog-upkeep")

    def __contains__(self, replica: HostedReplica) -> bool:
        """Whether this is still the replica of its partition, and its log can be used.

        To be asked after anything else had its turn: between two slices, after work beside the loop.
        """
        return replica in self._replicas and not replica.offline

    async def on(self, directory: LogDirectory) -> AsyncIterator[Sequence[HostedReplica]]:
        """Yield the replicas whose logs lie there, in slices; between two of them others have their turn."""
        parent = str(directory.path)
        async for part in in_slices(self._replicas):
            yield [replica for replica in part if replica.log.parent == parent and not replica.offline]

    async def all_on(self, directory: LogDirectory) -> AsyncIterator[Sequence[HostedLog]]:
        """Yield what checkpoints of a directory tell of, in slices: replicas, and copies under way."""
        parent = str(directory.path)
        async for part in in_slices(self._replicas):
            logs: list[HostedLog] = [replica for replica in part if replica in self._replicas]
            logs += [replica.future for replica in part if replica.future is not None]
            yield [hosted for hosted in logs if hosted.log.parent == parent and not hosted.offline]

    async def beside_loop(self, work: Callable[[], _Result]) -> _Result:
        """Have something done that blocks; return what comes of it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Let go of the threads."""
        self._executor.shutdown(wait=False)
