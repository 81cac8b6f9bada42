"""Copies: replicas of a broker that are not in sync, held back by the quota of replication and by their pace.

Replicas in sync are never held back: they would leave the ISR for it. A copy that is needed makes no pauses:
a partition with too few replicas in sync takes no records with acks=all, and with one it can lose them all.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sparklog.executor.fetching.machine.copy_pace import Copied, CopyPace
from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.clocks import monotonic_ms, monotonic_us
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.protocol.types import BrokerId

_REDUNDANT: Final = 2
"""With so many replicas in sync the loss of one loses no record."""


class Copies:
    """All copies of a broker; its fetchers share it."""

    def __init__(
        self,
        broker_id: BrokerId,
        table: PartitionTable,
        quota: ReplicationQuota,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> None:
        """Tell replicas in sync by the metadata of `table`; `quota` limits all of the broker's fetches."""
        self._broker_id = broker_id
        self._table = table
        self._quota = quota
        self._pace = CopyPace()
        self.clock_us = clock_us

    def may_pause(self, replica: Replica) -> bool:
        """Whether this broker is not in the ISR, by the metadata that it has, and others are enough."""
        partition = self._registration(replica)
        if partition is None or self._broker_id in partition.isr:
            return False
        enough = max(_REDUNDANT, replica.settings.min_insync_replicas)
        return len(partition.isr) >= min(enough, len(partition.target_replicas))

    def fetched(self, replica: Replica, size_bytes: int) -> int | None:
        """Count bytes that were fetched; return the pause that the quota requires, in milliseconds."""
        if not self._counts(replica):
            return None
        now_ms = monotonic_ms()
        self._quota.record(size_bytes, now_ms)
        return None if self._is_in_sync(replica) else self._quota.rest_ms(now_ms)

    def took(self, copied: Iterable[Copied], began_us: int, share: float) -> None:
        """Note the records of an answer for copies: that share of the bytes appended since `began_us`."""
        now_us = self.clock_us()
        self._pace.took(copied, int((now_us - began_us) * share), now_us)

    def rest_ms(self, replica: Replica) -> int | None:
        """Return the pause of a replica from now on, in milliseconds; None for no pause."""
        rest_ms = self._pace.pause_us(self.clock_us()) // 1_000 if self.may_pause(replica) else 0
        if self._counts(replica) and not self._is_in_sync(replica):
            rest_ms = max(rest_ms, self._quota.rest_ms(monotonic_ms()) or 0)
        return rest_ms or None

    def _counts(self, replica: Replica) -> bool:
        quota, partition = self._quota, replica.topic_partition.partition
        return quota.is_bounded and quota.includes(replica.settings.follower_throttled, partition)

    def _is_in_sync(self, replica: Replica) -> bool:
        partition = self._registration(replica)
        return partition is None or self._broker_id in partition.isr

    def _registration(self, replica: Replica) -> PartitionRegistration | None:
        """Return the partition as in the metadata; None if it is deleted."""
        return self._table.image.topics.partition(replica.topic_id, replica.topic_partition.partition)
