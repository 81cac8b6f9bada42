"""The logs of this broker over its directories: loading, creating, deleting, removing strays.

All file work runs off the event loop. A directory whose disk fails goes offline with everything in it
(reported to `on_failed`); the others go on.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.node.clocks import wall_clock_ms
from sparklog.node.storage.checkpoints import REPLICATION_OFFSET_CHECKPOINT
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.files import is_shortage
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TopicPartition

logger = logging.getLogger(__name__)

MAX_PREFERRED: Final = 100_000
"""The number of partitions with a remembered directory for their creation."""


class _Loaded(NamedTuple):
    log: Log
    high_watermark: Offset


class LogStore:
    def __init__(
        self,
        directories: Sequence[LogDirectory],
        executor: Executor,
        on_failed: Callable[[LogDirectory, Exception], None],
    ) -> None:
        self.directories = directories
        self._executor = executor
        self._on_failed = on_failed
        self._work = WorkInOrder()
        self._loaded: dict[TopicPartition, list[_Loaded]] = {}
        """Loaded from disk and not opened yet; two of one partition after a failed directory is back."""
        self._unnamed: dict[TopicPartition, list[_Loaded]] = {}
        """Loaded logs to which the system has refused to write a topic id, for the next attempt."""
        self._futures: dict[TopicPartition, list[Log]] = {}
        """Loaded copies of logs that were being moved, not claimed yet."""
        self._unpromoted: dict[TopicPartition, list[Log]] = {}
        """Copies that the system has refused to make the log of their partition, for the next attempt."""
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        """The requested directories of logs that do not exist yet (KIP-113)."""
        self._by_path = {str(directory.path): directory for directory in directories}
        self._log_counts: Counter[Path] = Counter()
        self._volumes: dict[LogDirectory, asyncio.Future[tuple[int, int] | None]] = {}

    def ask_volume(self, directory: LogDirectory) -> "asyncio.Future[tuple[int, int] | None]":
        """Run `LogDirectory.volume_bytes` in a thread, unless the last run has not ended."""
        asked = self._volumes.get(directory)
        if asked is None or asked.done():
            loop = asyncio.get_running_loop()
            asked = self._volumes[directory] = loop.run_in_executor(None, directory.volume_bytes)
        return asked

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def online_ids(self) -> tuple[UUID, ...]:
        return tuple(directory.meta.directory_id for directory in self.online if directory.meta is not None)

    async def load(self, config_for: Callable[[str], LogConfig], threads_per_directory: int) -> None:
        """Open every log of every directory, recovering those of an unclean stop.

        If the system lacks a resource (descriptors, memory) no directory is given up: the loaded logs are
        closed again, for another start to load all.

        Raises:
            KafkaError: kafka_storage_error: no directory can be read, or the system lacks a resource.
        """
        loop = asyncio.get_running_loop()
        loaded = await asyncio.gather(
            *(
                loop.run_in_executor(self._executor, _load, directory, config_for, threads_per_directory)
                for directory in self.directories
            )
        )
        refused: KafkaError | None = None
        for directory, logs in zip(self.directories, loaded, strict=True):
            if isinstance(logs, Exception):
                if is_shortage(logs):
                    refused = _refused(directory, logs)
                else:
                    self._on_failed(directory, logs)
                continue
            for found in logs:
                self._loaded.setdefault(found.log.topic_partition, []).append(found)
            for future in directory.futures:
                self._futures.setdefault(future.topic_partition, []).append(future)
            self._log_counts[directory.path] += len(logs) + len(directory.futures)
        if refused is not None:
            await self._put_back(
                directory
                for directory, logs in zip(self.directories, loaded, strict=True)
                if not isinstance(logs, Exception)
            )
            raise refused
        if not self.online:
            raise _all_failed(self.directories)

    async def _put_back(self, directories: Iterable[LogDirectory]) -> None:
        """Close the loaded logs, and leave the directories as cleanly as they were found."""
        await self.close_unclaimed()
        for directory in directories:
            if directory.previous_stop is PreviousStop.CLEAN:
                await self._run_in_thread(
                    directory, partial(directory.write_clean_shutdown, directory.previous_broker_epoch)
                )

    def begin(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> Log | None:
        """Begin the log of a partition of which nothing lies here, without touching a disk.

        None if something does, or other work on files comes before: `open` has to look at it.

        Raises:
            KafkaError: kafka_storage_error: all directories have failed.
        """
        if self._work.is_busy or any(topic_partition in each for each in self._found()):
            return None
        return self._begin(topic_partition, topic_id, config, assigned_directory)

    def _found(self) -> Iterator[Collection[TopicPartition]]:
        yield from (self._loaded, self._unnamed, self._futures, self._unpromoted)
        for directory in self.online:
            yield from (directory.unreadable, directory.vanished)

    async def open(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> tuple[Log, Offset]:
        """Return a partition's log and its last known high watermark; begin it if there is none.

        `assigned_directory` is the directory in the metadata. Logs of older topics of that name are removed.

        Raises:
            KafkaError: kafka_storage_error.
        """
        found = self._loaded.pop(topic_partition, []) + self._unnamed.pop(topic_partition, [])
        of_topic = [loaded for loaded in found if loaded.log.topic_id in (topic_id, None)]
        chosen = max(
            of_topic,
            key=lambda loaded: (
                self.directory_id_of(loaded.log) == assigned_directory,
                loaded.log.log_end_offset,
            ),
            default=None,
        )
        await self._remove(loaded.log for loaded in found if loaded is not chosen)
        if chosen is not None:
            if chosen.log.topic_id is None:
                try:
                    await asyncio.get_running_loop().run_in_executor(
                        self._executor, chosen.log.assign_topic_id, topic_id
                    )
                except KafkaError:
                    self._unnamed[topic_partition] = [chosen]
                    raise
            chosen.log.reconfigure(config)
            return chosen
        for directory in self.online:
            unreadable = directory.unreadable.get(topic_partition)
            if unreadable is not None:
                raise unreadable
        left = await self._promote(topic_partition, topic_id, assigned_directory)
        if left is not None:
            return left, 0
        log = self._begin(topic_partition, topic_id, config, assigned_directory)
        if any(topic_partition in directory.vanished for directory in self.online):
            log.missing = f"there were records of {topic_partition} when its directory was closed"
        return log, 0

    def _begin(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> Log:
        directory = (
            self._preferred_directory(topic_partition)
            # After a restart a log without records belongs where it was: nothing there says so.
            or next((each for each in self.online if _has_id(each, assigned_directory)), None)
            or self._least_used()
        )
        self._log_counts[directory.path] += 1
        return directory.begin_log(topic_partition, topic_id, config, wall_clock_ms())

    async def _promote(
        self, topic_partition: TopicPartition, topic_id: UUID, assigned_directory: UUID | None
    ) -> Log | None:
        """Use a copy as the log if there is only the copy: the other disk failed during the move."""
        copies = self._futures.get(topic_partition, []) + self._unpromoted.pop(topic_partition, [])
        of_topic = [log for log in copies if log.topic_id == topic_id]
        if not of_topic:
            return None
        future = max(of_topic, key=lambda log: log.log_end_offset)
        self._futures[topic_partition] = [log for log in copies if log is not future]
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, future.promote)
        except KafkaError as error:
            if self.directory_of(future).is_failed_by(error):
                self._on_failed(self.directory_of(future), error)
            else:
                self._unpromoted[topic_partition] = [future]
            raise
        if self.directory_id_of(future) == assigned_directory:
            future.missing = f"it was a copy, and what was copied last of {topic_partition} is not known"
        logger.warning("%s: going on with the copy in %s", topic_partition, future.directory)
        return future

    # --- moves between directories ---------------------------------------------------------------

    def prefer(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Remember the directory for the creation of a log that does not exist yet."""
        if len(self._preferred) >= MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic_partition] = directory

    def _preferred_directory(self, topic_partition: TopicPartition) -> LogDirectory | None:
        directory = self._preferred.pop(topic_partition, None)
        return None if directory is None or directory.failure is not None else directory

    def claim_future(self, current: Log) -> Log | None:
        """Return the loaded copy of a log whose move goes on; other copies are strays."""
        futures = self._futures.get(current.topic_partition, [])
        usable = [log for log in futures if log.topic_id == current.topic_id and log.parent != current.parent]
        future = max(usable, key=lambda log: log.log_end_offset, default=None)
        if future is not None:
            futures.remove(future)
        return future

    async def create_future(self, current: Log, directory: LogDirectory) -> Log:
        """Create the copy of a log of another directory.

        Raises:
            KafkaError: kafka_storage_error.
        """
        future = await asyncio.get_running_loop().run_in_executor(
            self._executor, directory.create_future, current, wall_clock_ms()
        )
        self._log_counts[directory.path] += 1
        return future

    async def delete(self, log: Log) -> None:
        """Delete a log; its files go after `file.delete.delay.ms`."""
        directory = self._let_go(log)
        await self._run_in_thread(directory, lambda: directory.delete_log(log, wall_clock_ms()))

    def begin_work(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work on files, once all that was begun before is done."""
        self._work.begin(work)

    async def end_work(self, timeout_s: float | None) -> None:
        """Wait until all work is done, for `timeout_s` at most if that is not None; raise its error.

        After an error no directory counts as cleanly shut down: a log may be open that no replica has.
        """
        try:
            await self._work.end(timeout_s)
        except Exception:
            for directory in self.directories:
                directory.has_unclosed_logs = True
            raise

    async def work_fails(self) -> None:
        """Wait until work on files fails; raise its error."""
        await self._work.fail()

    async def side_by_side(self, work: Iterable[Awaitable[None]]) -> None:
        """Run work in parallel, each part of which waits for a disk."""
        await asyncio.gather(*work)

    async def remove_strays(self) -> None:
        """Remove the loaded logs that no image contains."""
        for directory in self.directories:
            directory.vanished.clear()
        strays, self._loaded = self._loaded, {}
        futures, self._futures = self._futures, {}
        await self._remove(loaded.log for found in strays.values() for loaded in found)
        await self._remove(log for logs in futures.values() for log in logs)

    async def close_unclaimed(self) -> None:
        """Flush and close the loaded logs that were not opened yet."""
        unclaimed = [*self._loaded.values(), *self._unnamed.values()]
        self._loaded, self._unnamed = {}, {}
        futures = [log for logs in (*self._futures.values(), *self._unpromoted.values()) for log in logs]
        self._futures, self._unpromoted = {}, {}
        await asyncio.gather(
            *(self.close(loaded.log) for found in unclaimed for loaded in found),
            *(self.close(log) for log in futures),
        )

    async def close(self, log: Log) -> None:
        await self._run_in_thread(self.directory_of(log), log.close)

    def directory_of(self, log: Log) -> LogDirectory:
        """Return the directory of a log, deleted ones too."""
        return self._by_path[log.parent]

    def directory_id_of(self, log: Log) -> UUID | None:
        meta = self.directory_of(log).meta
        return None if meta is None else meta.directory_id

    async def _remove(self, logs: Iterable[Log]) -> None:
        for log in list(logs):
            logger.warning(
                "%s is not a partition of this broker: removing %s", log.topic_partition, log.directory
            )
            await self._remove_one(log)

    async def _remove_one(self, log: Log) -> None:
        directory = self._let_go(log)
        await self._run_in_thread(directory, lambda: directory.remove_stray(log, wall_clock_ms()))

    def _let_go(self, log: Log) -> LogDirectory:
        directory = self.directory_of(log)
        self._log_counts[directory.path] -= 1
        return directory

    async def _run_in_thread(self, directory: LogDirectory, work: Callable[[], object]) -> None:
        """Run work on a directory that is online; an error affects this directory only."""
        if directory.failure is not None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except (KafkaError, OSError) as error:
            if directory.is_failed_by(error):
                self._on_failed(directory, error)
            else:
                # Not closed or not removed: the next start handles it.
                logger.error("%s: %s", directory.path, error)
                directory.has_unclosed_logs = True

    def _least_used(self) -> LogDirectory:
        online = self.online
        if not online:
            raise _all_failed(self.directories)
        if len(online) == 1:
            return online[0]
        return min(online, key=lambda directory: self._log_counts[directory.path])


def _has_id(directory: LogDirectory, directory_id: UUID | None) -> bool:
    return directory.meta is not None and directory.meta.directory_id == directory_id


def _load(
    directory: LogDirectory, config_for: Callable[[str], LogConfig], threads: int
) -> list[_Loaded] | Exception:
    try:
        logs = directory.load_all(config_for, wall_clock_ms(), threads=threads)
    except KafkaError as error:
        return error
    high_watermarks = directory.checkpoints.read(REPLICATION_OFFSET_CHECKPOINT)
    return [_Loaded(log, high_watermarks.get(partition, 0)) for partition, log in logs.items()]


def _refused(directory: LogDirectory, error: Exception) -> KafkaError:
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"{directory.path} cannot be loaded for lack of a system resource (if it is descriptors, raise "
        f"RLIMIT_NOFILE, ulimit -n); its disk may be fine: {error}",
    )


def _all_failed(directories: Sequence[LogDirectory]) -> KafkaError:
    reasons = "; ".join(f"{directory.path}: {directory.failure}" for directory in directories)
    return KafkaError(ErrorCode.kafka_storage_error, f"no log directory can be used: {reasons}")


class WorkInOrder:
    """Work on files beside the loop's other work, one part after the other.

    For one event loop. `begin` as often as there is work; `end` before the files are closed.
    """

    def __init__(self) -> None:
        self._last: asyncio.Task[None] | None = None
        self._has_failed = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether work is not done yet."""
        return self._last is not None and not self._last.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work once all that was begun before is done."""
        self._last = asyncio.get_running_loop().create_task(self._after(self._last, work))

    async def end(self, timeout_s: float | None) -> None:
        """Wait until all work is done, for `timeout_s` at most if that is not None.

        Raises:
            BaseException: the first error of the work so far; what was to follow is not done.
        """
        last = self._last
        if last is not None and not last.done():
            await asyncio.wait([last], timeout=timeout_s)
        if last is not None and last.done():
            last.result()

    async def fail(self) -> None:
        """Wait until work fails, whether or not anything waits for its end.

        Raises:
            Exception: the first error of the work.
        """
        await self._has_failed.wait()
        await self.end(None)

    async def _after(self, before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]) -> None:
        if before is not None:
            try:
                await before
            except BaseException:
                work.close()
                raise
        try:
            await work
        except Exception:
            self._has_failed.set()
            raise
