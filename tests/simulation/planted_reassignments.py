"""Bugs of reassignments that the simulator must find; see `planted`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sparklog.driver.controller.machine import elections, partition_changes
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.partition_changes import Election
from sparklog.driver.controller.machine.reassignment import Assignment
from sparklog.driver.controller.machine.requests import alter_partition, alter_reassignments
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.node.metadata.schemas import NO_LEADER_CHANGE
from sparklog.protocol.types import BrokerId, or_minus_one
from tests.simulation.planted_bug import PlantedBug, Replacement


def _removed_before_in_sync() -> Sequence[Replacement]:
    def is_complete(self: Assignment, isr: Any) -> bool:
        return bool(self.adding or self.removing) and any(
            broker_id in isr for broker_id in self.replicas if broker_id not in self.removing
        )

    return [Replacement(Assignment, "is_complete", is_complete)]


def _added_into_isr() -> Sequence[Replacement]:
    change = alter_reassignments.change_partition

    def change_with_new(*arguments: Any, isr: Any, assignment: Assignment, **named: Any) -> Any:
        isr = (*isr, *set(assignment.adding) - set(isr))
        return change(*arguments, isr=isr, assignment=assignment, **named)

    return [Replacement(alter_reassignments, "change_partition", change_with_new)]


def _cancelled_stays_in_isr() -> Sequence[Replacement]:
    change = alter_reassignments.change_partition

    def change_replicas_only(partition: Any, *arguments: Any, isr: Any, **named: Any) -> Any:
        return change(partition, *arguments, isr=partition.isr, **named)

    return [Replacement(alter_reassignments, "change_partition", change_replicas_only)]


def _cancelled_uncleanly() -> Sequence[Replacement]:
    def change_in_spite(cluster: ClusterState, topic: Any, partition: Any, asked: Any, allow: bool) -> Any:
        if asked.replicas is not None or partition is None or not partition.is_reassigning:
            return decide(cluster, topic, partition, asked, allow)
        assignment = alter_reassignments.cancelled(partition)
        isr = [member for member in partition.isr if member in assignment.replicas]
        placed = replace(partition, **assignment.changes(partition))
        return partition_changes.change_partition(
            partition,
            topic.topic_id,
            asked.partition_index,
            cluster.may_lead(placed),
            cluster.isr_rules(topic.name),
            Election.ONLINE,
            isr=tuple(isr or assignment.replicas[:1]),
            assignment=assignment,
        )

    decide = alter_reassignments._decide
    return [Replacement(alter_reassignments, "_decide", change_in_spite)]


def _reassignments_mixed() -> Sequence[Replacement]:
    reassigned = alter_reassignments.reassigned

    def from_what_is_there(partition: Any, *arguments: Any) -> Assignment:
        return reassigned(replace(partition, adding_replicas=()), *arguments)

    return [Replacement(alter_reassignments, "reassigned", from_what_is_there)]


def _leader_epoch_kept() -> Sequence[Replacement]:
    change = partition_changes.change_partition

    def change_quietly(partition: Any, *arguments: Any, **named: Any) -> Any:
        record = change(partition, *arguments, **named)
        if record is not None and record.leader == or_minus_one(partition.leader):
            return replace(record, leader=NO_LEADER_CHANGE)
        return record

    return [
        Replacement(module, "change_partition", change_quietly)
        for module in (alter_partition, alter_reassignments, elections)
    ]


def _removed_leader_stays() -> Sequence[Replacement]:
    elect = partition_changes._elect

    def elect_as_before(partition: Any, isr: Any, elr: Any, may_lead: Any, *arguments: Any) -> Any:
        if partition.leader is not None and partition.leader not in partition.replicas:
            return elect(partition, (*isr, partition.leader), elr, lambda _: True, *arguments)
        return elect(partition, isr, elr, may_lead, *arguments)

    return [Replacement(partition_changes, "_elect", elect_as_before)]


def _removed_stays_eligible() -> Sequence[Replacement]:
    def last_in_sync(partition: Any) -> tuple[BrokerId, ...]:
        counted_on = {*partition.isr, *partition.elr, *partition.last_known_elr} - {partition.leader}
        return (partition.leader, *sorted(counted_on))

    return [Replacement(partition_changes, "_last_in_sync", last_in_sync)]


def _removed_stays_in_isr() -> Sequence[Replacement]:
    def applied(self: Assignment) -> Assignment:
        return self._replace(adding=(), removing=())

    return [Replacement(Assignment, "completed", applied)]


def _added_taken_for_caught_up() -> Sequence[Replacement]:
    assign = PartitionLeader._assign

    def assign_all(self: PartitionLeader, replicas: Any, adding: Any, now_ms: int) -> None:
        assign(self, replicas, adding, now_ms)
        for broker_id in adding:
            if broker_id != self.broker_id and self.followers[broker_id].log_end_offset is None:
                self.followers[broker_id].log_end_offset = self.log_end_offset
                self.followers[broker_id].last_fetch_ms = now_ms

    return [Replacement(PartitionLeader, "_assign", assign_all)]


REASSIGNMENT_BUGS: Final = {
    "removed-before-in-sync": PlantedBug(
        "a reassignment is over when the first of its target is in sync", _removed_before_in_sync
    ),
    "added-into-isr": PlantedBug(
        "replicas that a reassignment adds are in the ISR from the beginning", _added_into_isr
    ),
    "added-taken-for-caught-up": PlantedBug(
        "a leader takes a replica that is added for one that has everything", _added_taken_for_caught_up
    ),
    "cancelled-stays-in-isr": PlantedBug(
        "a reassignment is called off, and what it had added stays in the ISR", _cancelled_stays_in_isr
    ),
    "cancelled-uncleanly": PlantedBug(
        "a reassignment is called off to replicas none of which is in sync", _cancelled_uncleanly
    ),
    "reassignments-mixed": PlantedBug(
        "a reassignment that replaces another takes for original what that one has added",
        _reassignments_mixed,
    ),
    "leader-epoch-kept": PlantedBug(
        "replicas are removed in the leader epoch in which they replicated", _leader_epoch_kept
    ),
    "removed-leader-stays": PlantedBug(
        "a reassignment is over, and a leader that it removes leads on", _removed_leader_stays
    ),
    "removed-stays-in-isr": PlantedBug(
        "a reassignment is over, and the replicas that it removes stay", _removed_stays_in_isr
    ),
    "removed-stays-eligible": PlantedBug(
        "a replica that was removed is remembered as one of the last in sync", _removed_stays_eligible
    ),
}
"""By name."""
