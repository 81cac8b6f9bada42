"""One replica's move into another directory, by the steps of `DirectoryMove`.

Threads do the blocking work, one for each of num.replica.alter.log.dirs.threads; further moves wait for their
turn. All else runs on the loop, where the current log is changed too: nothing can change it between the check
that the copy is complete and the rename.

`cancel` or `halt` ends the move; a step under way is waited for, so that no thread works on files being
deleted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

from sparklog.executor.log_dir_moves.log_copy import LogCopy
from sparklog.executor.log_dir_moves.machine.directory_move import DirectoryMove, Step
from sparklog.executor.logs.log_store import LogStore
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.files import NO_SPACE, is_transient, sync_directory, system_error
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
LOOK_AGAIN_S: Final = 1.0
"""The longest wait for an event without a notification."""

_Result = TypeVar("_Result")


class CopyServices(NamedTuple):
    broker_id: BrokerId
    table: PartitionTable
    store: LogStore
    reports: DirectoryReports
    quota: ReplicationQuota
    semaphore: asyncio.Semaphore
    """One for each replica that is copied at a time."""
    executor: Executor
    """A thread for each of them."""
    lower_checkpoints: Callable[[FutureReplica], Awaitable[None]]
    """Writes the checkpoints of a copy that was truncated."""
    checkpoint: Callable[[LogDirectory], Awaitable[None]]
    on_failed: Callable[[LogDirectory, Exception], None]
    """Handles the failure of a directory's disk."""


class _CopyFailedError(Exception):
    """The copy cannot be written; the cause is the error."""


class DirectoryCopying:
    """The move of `replica`, whose copy is `future`."""

    def __init__(self, replica: Replica, future: FutureReplica, services: CopyServices) -> None:
        self.future: Final = future
        self.target: Final = services.store.directory_of(future.log)
        self._replica = replica
        self._services = services
        self._copy = LogCopy(replica, future)
        assert self.target.meta is not None, f"{self.target.path} is formatted"
        self._target_id: Final = self.target.meta.directory_id
        self._machine = DirectoryMove(self._target_id)
        self._is_over = False
        self._deletes = False
        self._woken = asyncio.Event()
        self._has_turn = False
        self._waiting: asyncio.Task[bool] | None = None
        """The wait for its turn."""

    def wake(self) -> None:
        self._woken.set()

    def halt(self) -> None:
        """Stop; the copy stays unchanged."""
        self._is_over = True
        self._woken.set()
        if self._waiting is not None:
            self._waiting.cancel()

    def cancel(self, *, delete: bool) -> None:
        """Stop and abandon the copy; `delete` its files."""
        self.future.offline = True
        self._deletes = delete
        self.halt()

    async def run(self) -> None:
        """Copy until the copy is the replica's log, or the move ends for another reason."""
        try:
            while not self._is_over:
                await self._try_step()
        finally:
            self._give_turn()
        if self._deletes:
            await self._services.store.delete(self.future.log)
        elif self.future.offline:
            # Its files stay, closed.
            await self._run_in_thread(partial(self.future.log.close, clean=False))

    async def _try_step(self) -> None:
        try:
            await self._step()
        except _CopyFailedError as failed:
            error = failed.__cause__
            assert isinstance(error, Exception)
            if is_transient(error) and self.future.log.is_intact and not self._is_over:
                await self._retry(error)
            else:
                self._copy_failed(error)
        except (KafkaError, OSError) as error:
            if self._is_over:
                return
            # Readers and writers of the replica's own log handle its errors.
            await self._retry(error)

    async def _retry(self, error: Exception) -> None:
        logger.warning("%s cannot be copied to %s for now: %s", self._replica, self.target.path, error)
        self._give_turn()
        await self._rest(RETRY_S)

    async def _step(self) -> None:
        replica, copy, services = self._replica, self._copy, self._services
        with _of_copy():
            copy.follow_cuts(wall_clock_ms())
        if self.future.log.loading is not None:
            await self._load_producers()
            return
        registration = services.table.image.topics.partition(*replica.key)
        step = self._machine.next_step(
            log_end_offset=replica.log.log_end_offset,
            copied_offset=self.future.log.log_end_offset,
            is_near=copy.is_near,
            is_settling=copy.is_settling,
            is_throttled=services.quota.is_exceeded(monotonic_ms()),
            assigned_directory=None
            if registration is None
            else registration.directory_of(services.broker_id),
        )
        if step not in (Step.COPY, Step.REST):
            self._give_turn()
        match step:
            case Step.COPY:
                await self._copy_range()
            case Step.REST:
                await self._rest((services.quota.rest_ms(monotonic_ms()) or 0) / 1000)
            case Step.SECURE:
                await self._run_of_copy_in_thread(self.future.log.flush)
                await services.checkpoint(self.target)
                self._machine.secured()
            case Step.REPORT:
                services.reports.moves_to(replica.key, self._target_id)
            case Step.WAIT:
                await self._rest(LOOK_AGAIN_S)
            case Step.REPLACE:
                await self._replace()

    async def _copy_range(self) -> None:
        if not self._has_turn:
            # The facts of this step are outdated after the wait.
            await self._take_turn()
            return
        current, config = self._replica.log, self._replica.settings.log
        if self.future.log.config is not config:
            self.future.log.reconfigure(config)
        truncation_count = current.truncation_count
        copied = await self._run_in_thread(partial(self._copy.read, current.log_end_offset, truncation_count))
        if self._is_over or current.truncation_count != truncation_count:
            return
        quota = self._services.quota
        if quota.is_bounded:
            quota.record(len(copied.records), monotonic_ms())
        await self._run_of_copy_in_thread(partial(self._copy.append, copied, wall_clock_ms()))

    async def _load_producers(self) -> None:
        """Finish a truncation of the copy, as `ProducerLoads` does for replicas."""
        log = self.future.log
        loading = log.loading
        assert loading is not None
        producers = await self._run_of_copy_in_thread(partial(loading.run, wall_clock_ms()))
        while log.is_checkpointed_too_high and not self._is_over:
            await self._services.lower_checkpoints(self.future)
            if log.is_checkpointed_too_high:
                await self._rest(RETRY_S)
        log.take_producers(loading, producers)

    async def _replace(self) -> None:
        replica, services = self._replica, self._services
        with _of_copy():
            before = self._copy.replace(wall_clock_ms())
        self._is_over = True
        services.reports.opened(replica.key, self._target_id, damaged=False)
        logger.info("%s: lies in %s now, and did in %s", replica, self.target.path, before.parent)
        with suppress(OSError):
            # Before the old log is deleted. The next flush notices a failed disk.
            await self._run_in_thread(partial(sync_directory, self.target.path))
        await services.store.delete(before)

    def _copy_failed(self, error: Exception) -> None:
        """Handle an error of writing the copy: end the move, unless the error is transient."""
        if self._is_over:
            return
        cause = system_error(error)
        if cause is not None and cause.errno in NO_SPACE:
            # Deleting the copy costs least of all reactions to a full disk: it is not needed.
            logger.error("%s is not moved to %s, which is full: %s", self._replica, self.target.path, error)
            self.cancel(delete=True)
        elif self.target.is_failed_by(error):
            self._services.on_failed(self.target, error)
            self.cancel(delete=False)
        else:
            logger.error("%s is not moved to %s: %s", self._replica, self.target.path, error)
            self.cancel(delete=True)

    async def _take_turn(self) -> None:
        waiting = asyncio.get_running_loop().create_task(_acquired(self._services.semaphore))
        self._waiting = waiting
        try:
            self._has_turn = await waiting
        except asyncio.CancelledError:
            if not self._is_over:
                raise

    def _give_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._services.semaphore.release()

    async def _rest(self, seconds: float) -> None:
        self._woken.clear()
        if not self._is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()

    async def _run_in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._services.executor, work)

    async def _run_of_copy_in_thread(self, work: Callable[[], _Result]) -> _Result:
        with _of_copy():
            return await self._run_in_thread(work)


async def _acquired(semaphore: asyncio.Semaphore) -> bool:
    return await semaphore.acquire()


@contextmanager
def _of_copy() -> Iterator[None]:
    """Raise errors inside as errors of the copy."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise _CopyFailedError(str(error)) from error
