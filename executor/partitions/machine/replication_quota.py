"""Replication quotas: a bound on the bytes that a broker sends, or fetches, for replicas that catch up.

Only replicas that their topics list, and only while they are not in sync, are held back; what is listed
counts in sync, too. A replica in sync is never held back: it would leave the ISR for it.

Pure. Source: Kafka's ReplicationQuotaManager and ReplicaManager.shouldLeaderThrottle; KIP-73.
"""

from typing import Final

from sparklog.node.config.throttled_replicas import ThrottledReplicas
from sparklog.node.rates import QuotaWindows, SimpleRate
from sparklog.protocol.types import BrokerId

NO_BOUND: Final = 2**63 - 1
_MAX_REST_MS: Final = 1_000


class ReplicationQuota:
    __slots__ = ("_bound", "_broker_id", "_rate", "is_bounded")

    def __init__(self, broker_id: BrokerId, windows: QuotaWindows) -> None:
        self._broker_id = broker_id
        self._rate = SimpleRate(windows)
        self._bound = NO_BOUND
        self.is_bounded = False
        """Whether anything need be counted."""

    def limit(self, bytes_a_second: int) -> None:
        """Set the bound; `NO_BOUND` is none."""
        self._bound = bytes_a_second
        self.is_bounded = bytes_a_second != NO_BOUND

    def includes(self, listed: ThrottledReplicas, partition: int) -> bool:
        """Whether this broker's replica of a partition is listed."""
        return listed.include(partition, self._broker_id)

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count the bytes that were sent or fetched for a listed replica."""
        self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether replicas that are not in sync may have no more bytes now."""
        return self.is_bounded and self._rate.rate(now_ms) > self._bound

    def rest_ms(self, now_ms: int) -> int | None:
        """Return the pause of fetches for replicas that are not in sync; None for no pause.

        Not longer than a second: the bound may be raised.
        """
        if not self.is_exceeded(now_ms):
            return None
        return min(self._rate.throttle_ms(max(self._bound, 1), now_ms), _MAX_REST_MS)
