"""The numbers of led and of under-replicated partitions, counted at each change and never searched.

Source: Kafka's ReplicaManager and Partition (isUnderReplicated, isUnderMinIsr, isAtMinIsr).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample

_COUNTS: Final = {
    server.LEADER_COUNT: "led",
    server.UNDER_REPLICATED: "under replicated",
    server.UNDER_MIN_ISR: "under min ISR",
    server.AT_MIN_ISR: "at min ISR",
    server.REASSIGNING: "reassigning",
    server.OFFLINE_REPLICA_COUNT: "offline",
}


class PartitionCounts(RoleListener[Replica]):
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._counted: dict[Replica, tuple[str, ...]] = {}
        """The counts of each replica that is counted at all."""

    def samples(self, now_ms: int) -> Iterator[Sample]:
        for metric, what in _COUNTS.items():
            yield Sample(metric.of(), Kind.GAUGE, self._counts[what])

    def deleted(self, replica: Replica) -> None:
        self._counts.subtract(self._counted.pop(replica, ()))

    def _count(self, replica: Replica) -> None:
        before, now = self._counted.get(replica, ()), _how_it_is(replica)
        if now == before:
            return
        self._counts.subtract(before)
        self._counts.update(now)
        if now:
            self._counted[replica] = now
        else:
            self._counted.pop(replica, None)

    became_leader = became_follower = isr_changed = stopped = _count


def _how_it_is(replica: Replica) -> tuple[str, ...]:
    if replica.offline:
        return ("offline",)
    leader = replica.leadership
    if leader is None:
        return ()
    how = ["led"]
    if len(leader.isr) < leader.replication_factor:
        how.append("under replicated")
    if replica.is_reassigning:
        how.append("reassigning")
    if leader.is_under_min_isr:
        how.append("under min ISR")
    elif len(leader.isr) == leader.effective_min_insync_replicas:
        how.append("at min ISR")
    return tuple(how)
