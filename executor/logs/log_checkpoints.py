"""The checkpoint files of the data directories: when they are written, and what they say.

Each kind has an interval of its own. A file that says too little costs time after a crash, so that may wait,
unless it costs a whole segment. One that says too much would have recovery trust what was never fsynced, or a
topic that was made again begin where its predecessor did. Both are written as soon as that is seen (`due`
compares every second or so): after what rolled has been flushed, after a truncation, and when a log came to
be under a name that a file still has. A log that was cut below what its file says takes nothing in before the
file says less (`lower_recovery_point`; Kafka's LogManager.truncateTo). A file that the disk refuses takes its
directory offline.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import inf
from typing import Final

from executor.partitions.replica import Replica
from executor.partitions.table import PartitionTable
from executor.process.slices import in_slices
from sparklog.errors import KafkaError
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory, log_start_offset_to_keep
from sparklog.types import Offset, TopicPartition

__all__ = ["Checkpoint", "CheckpointIntervals", "LogCheckpoints"]

logger = logging.getLogger(__name__)

Write = Callable[[LogDirectory, Mapping[TopicPartition, Offset]], None]


@dataclass(frozen=True, slots=True)
class CheckpointIntervals:
    """How often each kind of checkpoint is written, in milliseconds."""

    high_watermarks_ms: int
    recovery_points_ms: int
    log_start_offsets_ms: int


class Checkpoint:
    """One kind of checkpoint, over all directories."""

    def __init__(
        self,
        interval_ms: int,
        offset_of: Callable[[Replica], Offset | None],
        write: Write,
        is_far_behind: Callable[[Replica, Offset], bool] = lambda replica, written: False,
    ) -> None:
        self.interval_ms = interval_ms
        self.offset_of = offset_of
        """What a file is to say of a replica; `None` for nothing."""
        self._is_far_behind = is_far_behind
        """Whether what a file says of a replica is so little that it costs much."""
        self.write: Final = write
        self.written: dict[TopicPartition, Offset] = {}
        """What the files say."""
        self.due_ms = 0

    def written_of(self, replica: Replica) -> float:
        """Return what a file says of a replica; infinite while that is not known."""
        return self.written.get(replica.topic_partition, inf)

    def is_wrong_about(self, replica: Replica) -> bool:
        """Whether a file has a higher offset than the replica, or one that is far too low."""
        if replica.offline:
            return False
        written = self.written.get(replica.topic_partition)
        if written is not None:
            offset = self.offset_of(replica)
            if offset is None or offset < written:
                return True
        return self._is_far_behind(replica, written or 0)


class LogCheckpoints:
    """The checkpoints of one broker."""

    def __init__(
        self,
        replicas: PartitionTable,
        directories: Sequence[LogDirectory],
        directory_of: Callable[[Log], LogDirectory],
        on_failed: Callable[[LogDirectory, Exception], None],
        intervals: CheckpointIntervals,
        executor: Executor,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._directory_of = directory_of
        self._on_failed = on_failed
        self._executor = executor
        self._writing = asyncio.Lock()
        """One run at a time: an older one must not write over what a newer one wrote."""
        self._recovery_points = Checkpoint(
            intervals.recovery_points_ms,
            lambda replica: replica.log.recovery_point,
            LogDirectory.write_recovery_points,
            _costs_a_segment,
        )
        self._kinds = (
            self._recovery_points,
            Checkpoint(
                intervals.log_start_offsets_ms,
                lambda replica: log_start_offset_to_keep(replica.log),
                LogDirectory.write_log_start_offsets,
            ),
            Checkpoint(
                intervals.high_watermarks_ms,
                lambda replica: replica.high_watermark,
                LogDirectory.write_high_watermarks,
            ),
        )

    def start(self, now_ms: int) -> None:
        """Have every file written at the next occasion, since it may name what is gone."""
        for kind in self._kinds:
            kind.due_ms = now_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether an interval has passed."""
        return any(now_ms >= kind.due_ms for kind in self._kinds)

    async def due(self, now_ms: int, *, compare: bool) -> Sequence[Checkpoint]:
        """Return what is to be given to `write`, and count its intervals anew.

        With `compare`, the files are also held against the replicas.
        """
        due = {kind for kind in self._kinds if now_ms >= kind.due_ms}
        if compare:
            async for part in in_slices(self._replicas):
                due |= {kind for kind in self._kinds for replica in part if kind.is_wrong_about(replica)}
        for kind in due:
            kind.due_ms = now_ms + kind.interval_ms
        return [kind for kind in self._kinds if kind in due]

    async def write_all(self) -> None:
        """Write every file."""
        await self.write(self._kinds)

    async def write(self, kinds: Sequence[Checkpoint]) -> None:
        """Write the files of these kinds, beside the loop."""
        for kind in kinds:
            async with self._writing:
                await self._write(kind)

    async def lower_recovery_point(self, replica: Replica) -> None:
        """Have the file say no more of a log that was cut than what of it is on the disk.

        If that cannot be done now, `Log.is_checkpointed_too_high` stays.
        """
        kind, log = self._recovery_points, replica.log
        async with self._writing:
            # One run does for all that were cut before it.
            if log.is_checkpointed_too_high and kind.written_of(replica) > log.recovery_point:
                await self._write(kind)
            if kind.written_of(replica) <= log.recovery_point:
                log.checkpointed_recovery_point = log.recovery_point

    async def _write(self, kind: Checkpoint) -> None:
        loop = asyncio.get_running_loop()
        offsets = await self._offsets(kind)
        written: dict[TopicPartition, Offset] = {}
        failed = False
        for directory in self._directories:
            if directory.failure is not None:
                continue
            try:
                await loop.run_in_executor(self._executor, kind.write, directory, offsets[directory])
            except (KafkaError, OSError) as error:
                failed = True
                if directory.is_failed_by(error):
                    self._on_failed(directory, error)
                else:
                    logger.warning("%s: a checkpoint is written later: %s", directory.path, error)
            else:
                written |= offsets[directory]
        kind.written = kind.written | written if failed else written

    async def _offsets(self, kind: Checkpoint) -> Mapping[LogDirectory, Mapping[TopicPartition, Offset]]:
        offsets: dict[LogDirectory, dict[TopicPartition, Offset]] = {
            directory: {} for directory in self._directories
        }
        async for part in in_slices(self._replicas):
            for replica in part:
                if replica in self._replicas and not replica.offline:
                    offset = kind.offset_of(replica)
                    if offset is not None:
                        offsets[self._directory_of(replica.log)][replica.topic_partition] = offset
                        if kind is self._recovery_points:
                            log = replica.log
                            log.checkpointed_recovery_point = max(log.checkpointed_recovery_point, offset)
        return offsets


def _costs_a_segment(replica: Replica, recovery_point: Offset) -> bool:
    """Whether recovery from there would read what is on the disk of segments that are written to no more."""
    return recovery_point < replica.log.segments.active.base_offset <= replica.log.recovery_point
