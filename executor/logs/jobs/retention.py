"""Retention: deletes segments by age, by the log's size and by its start (Kafka's "kafka-log-retention").

It runs on the loop, since it changes logs; `file_deletion` deletes the files. Rules kept:

- The leader decides on age and size. A follower learns the new start from its next fetch and drops the
  records below; so it never begins above its leader, and the next leader has all records of the last one.
- Of a tiered topic each replica deletes its old local segments by itself, and only what the tier has: where
  that ends the leader knows, and followers ask it.
- A record from the future keeps its segment, and all behind it, until its time has come: a warning with the
  topic's name says so once for each segment.
"""

import logging
from weakref import WeakKeyDictionary

from sparklog.executor.fetching.tiered_ends import TieredEnds
from sparklog.executor.logs.jobs.job import HostedLogs, HostedReplica
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)


class RetentionJob:
    name = "log-retention"
    is_due_at_start = False

    def __init__(self, logs: HostedLogs, interval_ms: int, tiered_ends: TieredEnds) -> None:
        self.interval_ms = interval_ms
        self._tiered_ends = tiered_ends
        self._logs = logs
        self._warned_of: WeakKeyDictionary[HostedReplica, Offset] = WeakKeyDictionary()
        """The oldest segments that were from the future at the last check."""

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        wall_ms = wall_clock_ms()
        async for part in self._logs.on(directory):
            ends = await self._tiered_ends.of(
                replica for replica in part if replica.log.has_old_segments(wall_ms, replica.high_watermark)
            )
            for replica in part:
                if replica in self._logs:
                    _let_go_of_old(replica, wall_ms, ends.get(replica))
                    self._warn_of_future(replica, wall_ms)

    def _warn_of_future(self, replica: HostedReplica, wall_ms: int) -> None:
        log = replica.log
        oldest = log.segments.all[0]
        ahead_ms = oldest.max_timestamp_ms - wall_ms
        if not log.config.deletes or log.config.retention_ms is None or ahead_ms <= 0 or replica.offline:
            return
        if self._warned_of.get(replica) != oldest.base_offset:
            self._warned_of[replica] = oldest.base_offset
            logger.warning(
                "%s has records from the future: its oldest segment, which begins at offset %d, and those "
                "behind it stay %d s longer than retention.ms says (see message.timestamp.after.max.ms)",
                replica.topic_partition,
                oldest.base_offset,
                ahead_ms // 1000,
            )


def _let_go_of_old(replica: HostedReplica, wall_ms: int, tiered_end: Offset | None) -> None:
    start_before = replica.log.log_start_offset
    try:
        replica.log.delete_old_segments(
            wall_ms,
            replica.high_watermark,
            only_below_start=replica.leadership is None,
            tiered_end=tiered_end,
        )
    except (KafkaError, OSError) as error:
        replica.fail_if_storage(error)
        return
    if replica.log.log_start_offset != start_before:
        replica.log_start_offset_moved()
