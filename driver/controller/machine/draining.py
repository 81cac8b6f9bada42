"""Moves all replicas off the surplus brokers of a cluster that becomes smaller, so that these may end.

A pure machine, beside the controller's other decisions. `step` returns the next reassignments; a surplus
broker is drained when no partition has a replica on it (`is_drained`).

The rules:

- At most `MAX_IN_FLIGHT` partitions move at a time: each one's leader is read once more.
- A replica goes to an unfenced broker that stays: of a rack without a replica of the partition if there
  is one, and with the fewest replicas. It takes the same place in the order of preference, so leaders
  stay spread.
- A reassignment adds the new replica first and removes the old one at its end (KIP-455): the partition
  never has fewer replicas in sync than before. Leadership leaves a surplus broker with its replica.
- A partition without a leader, or whose new replica's broker is away, counts as none of them: its move
  would wait, and others with it. The former begins no move.
- A step looks at a bounded number of partitions, and the next one goes on after them.
- Nothing begins while the cluster is read-only: it copies what it has and stops.
- If the size is raised again, moves that are under way are cancelled, and finished ones stay.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.placement import UsableBroker
from sparklog.driver.controller.machine.requests.alter_reassignments import alter_reassignments
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.protocol.types import BrokerId, TopicIdPartition

MAX_IN_FLIGHT: Final = 20
LOOK_AGAIN_MS: Final = 1_000
"""The least time between the beginnings of two looks through all partitions."""
LOOKS_PER_PLAN: Final = 20
"""Partitions that a step looks at for each one whose move it may plan: most have no surplus replica."""
AWAY_MS: Final = 60_000
"""The absence after which a surplus broker that was not shut down counts as ended."""

logger = logging.getLogger(__name__)


class Draining:
    """The moves of one controller; begins with nothing to move."""

    def __init__(self) -> None:
        self._surplus: frozenset[BrokerId] = frozenset()
        self._unseen: Iterator[TopicIdPartition] | None = None
        """The partitions that the present look has still to come to; None between two looks."""
        self._in_flight: dict[TopicIdPartition, None] = {}
        self._looked_ms: int | None = None
        self._away_since_ms: dict[BrokerId, int] = {}
        """The time at which surplus brokers were first found to have no session."""

    def step(self, cluster: ClusterState, now_ms: int) -> list[MetadataRecord]:
        """Return the next moves, or the cancellation of those that are no longer wanted."""
        if cluster.config.sparklog_read_only:
            return []
        if cluster.surplus != self._surplus:
            self._surplus = cluster.surplus
            self._unseen = None
            self._away_since_ms = {
                each: since_ms for each, since_ms in self._away_since_ms.items() if each in self._surplus
            }
            self._looked_ms = None
            if not self._surplus:
                return self._given_up(cluster)
            logger.info("Brokers %s leave the cluster: their replicas move", sorted(self._surplus))
        if all(is_drained(cluster, each) for each in self._surplus):
            self._in_flight = {}
            return []
        self._in_flight = self._under_way(cluster)
        room = MAX_IN_FLIGHT - sum(_is_copied(cluster, partition) for partition in self._moving(cluster))
        return self._moves(cluster, room, now_ms) if room > 0 else []

    def ended(self, cluster: ClusterState, now_ms: int) -> list[BrokerId]:
        """Return the drained brokers that have shut down, or have been away for `AWAY_MS`.

        One that is only late would end by the loss of its registration, and its rack's job with it.
        """
        ended = []
        for broker_id in sorted(self._surplus & cluster.surplus):
            registration = cluster.image.brokers[broker_id]
            if not registration.fenced or cluster.sessions.is_alive(broker_id, now_ms):
                self._away_since_ms.pop(broker_id, None)
                continue
            since_ms = self._away_since_ms.setdefault(broker_id, now_ms)
            is_gone = registration.in_controlled_shutdown or now_ms - since_ms >= AWAY_MS
            if is_gone and is_drained(cluster, broker_id):
                ended.append(broker_id)
        return ended

    def _under_way(self, cluster: ClusterState) -> dict[TopicIdPartition, None]:
        return {
            key: None
            for key in self._in_flight
            if any(partition.is_reassigning for _, _, partition in cluster.partitions([key]))
        }

    def _moving(self, cluster: ClusterState) -> list[PartitionRegistration]:
        return [partition for _, _, partition in cluster.partitions(self._in_flight)]

    def _look(self, cluster: ClusterState, now_ms: int) -> Iterator[TopicIdPartition]:
        """Yield the next partitions of the present look through all, or of another one if that is due."""
        if self._unseen is None:
            if self._looked_ms is not None and now_ms - self._looked_ms < LOOK_AGAIN_MS:
                return
            self._looked_ms = now_ms
            self._unseen = cluster.image.topics.keys()
        for _ in range(LOOKS_PER_PLAN * cluster.partitions_per_decision):
            key = next(self._unseen, None)
            if key is None:
                self._unseen = None
                return
            yield key

    def _moves(self, cluster: ClusterState, room: int, now_ms: int) -> list[MetadataRecord]:
        brokers = {each.broker_id: each for each in cluster.usable_brokers() if not each.fenced}
        held = Counter(cluster.topic_index.load.held)
        moves: dict[TopicIdPartition, tuple[BrokerId, ...]] = {}
        plans = cluster.partitions_per_decision
        for key in self._look(cluster, now_ms):
            for _, _, partition in cluster.partitions([key]):
                if self._surplus.isdisjoint(partition.target_replicas):
                    if not self._surplus.isdisjoint(partition.removing_replicas):
                        self._in_flight[key] = None  # begun by an earlier controller
                    continue
                if partition.leader is None:
                    continue
                plans -= 1
                target = without(partition.target_replicas, self._surplus, brokers, held)
                if target is not None:
                    moves[key] = target
                    held.update(each for each in target if each not in partition.target_replicas)
            if len(moves) == room or not plans:
                break
        self._in_flight |= dict.fromkeys(moves)
        return _reassigned(cluster, moves) if moves else []

    def _given_up(self, cluster: ClusterState) -> list[MetadataRecord]:
        under_way = self._under_way(cluster)
        self._in_flight = {}
        if not under_way:
            return []
        logger.info("No broker leaves the cluster any more: %d moves are cancelled", len(under_way))
        return _reassigned(cluster, under_way)


def _is_copied(cluster: ClusterState, partition: PartitionRegistration) -> bool:
    return partition.leader is not None and all(map(cluster.is_active, partition.adding_replicas))


def is_drained(cluster: ClusterState, broker_id: BrokerId) -> bool:
    """Whether no partition has a replica on the broker, also none that is only being removed."""
    return not cluster.topic_index.load.held[broker_id]


def without(
    replicas: tuple[BrokerId, ...],
    surplus: Collection[BrokerId],
    brokers: Mapping[BrokerId, UsableBroker],
    held: Mapping[BrokerId, int],
) -> tuple[BrokerId, ...] | None:
    """Return the replicas with others in place of the surplus ones; None if there are too few brokers.

    >>> four = {each: UsableBroker(each, f"rack-{each}", False) for each in range(4)}
    >>> without((4, 0, 1), {4}, four, Counter({2: 7, 3: 5}))
    (3, 0, 1)
    """
    target = list(replicas)
    for place, broker_id in enumerate(replicas):
        if broker_id not in surplus:
            continue
        others = [each for each in target if each not in surplus]
        racks = {brokers[each].rack for each in others if each in brokers}
        free = [each for each in brokers.values() if each.broker_id not in target]
        if not free:
            return None
        target[place] = min(
            free, key=lambda each: (each.rack in racks, held[each.broker_id], each.broker_id)
        ).broker_id
    return tuple(target)


def _reassigned(
    cluster: ClusterState, moves: Mapping[TopicIdPartition, tuple[BrokerId, ...] | None]
) -> list[MetadataRecord]:
    topics: dict[str, list[ReassignablePartition]] = {}
    for key, replicas in moves.items():
        name = cluster.image.topics.by_id[key.topic_id].name
        topics.setdefault(name, []).append(
            ReassignablePartition(partition_index=key.partition, replicas=replicas)
        )
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False,
        topics=tuple(
            ReassignableTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
        ),
    )
    return list(alter_reassignments(cluster, request).records)
