"""Copies: replicas of a broker that are not in sync, held back by the quota of replication and by their pace.

Replicas in sync are never held back: they would leave the ISR for it.
"""

from collections.abc import Callable, Sequence

from sparklog.executor.fetching.machine.copy_pace import Copied, CopyPace
from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.clocks import monotonic_ms, monotonic_us
from sparklog.protocol.types import BrokerId


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

    def is_copy(self, replica: Replica) -> bool:
        """Whether this broker is not in the ISR, by the metadata that it has."""
        partition = replica.topic_partition.partition
        registration = self._table.image.topics.partition(replica.topic_id, partition)
        return registration is not None and self._broker_id not in registration.isr

    def fetched(self, replica: Replica, size_bytes: int) -> int | None:
        """Count bytes that were fetched; return the pause that the quota requires, in milliseconds."""
        if not self._counts(replica):
            return None
        now_ms = monotonic_ms()
        self._quota.record(size_bytes, now_ms)
        return self._quota.rest_ms(now_ms) if self.is_copy(replica) else None

    def took(self, copied: Sequence[Copied], began_us: int, share: float) -> None:
        """Note the records of an answer for copies: that share of the bytes appended since `began_us`."""
        now_us = self.clock_us()
        self._pace.took(copied, int((now_us - began_us) * share), now_us)

    def rest_ms(self, replica: Replica) -> int | None:
        """Return the pause of a replica from now on, in milliseconds; None for no pause."""
        if not self.is_copy(replica):
            return None
        rest_ms = self._pace.pause_us(self.clock_us()) // 1_000
        if self._counts(replica):
            rest_ms = max(rest_ms, self._quota.rest_ms(monotonic_ms()) or 0)
        return rest_ms or None

    def _counts(self, replica: Replica) -> bool:
        quota, partition = self._quota, replica.topic_partition.partition
        return quota.is_bounded and quota.includes(replica.settings.follower_throttled, partition)
