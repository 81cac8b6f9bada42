"""The leader and ISR of a partition after a change.

The rules:

- A leader is elected from the ISR (or, when the ISR is empty, from the eligible leader replicas, KIP-966).
  Only an unclean election goes beyond that: its leader is alone in the ISR and RECOVERING (KIP-704).
  An original replica is preferred to one that a reassignment adds, whose copy may have hardly begun; an
  automatic election never takes that one, since the reassignment would then delete the original's log.
- When a partition loses its last leader, all replicas that were in sync or eligible then are remembered:
  should all of them lose that, they are asked for the longest log (`unclean_recovery`). They stay remembered
  while the leader found so has not committed anything: should its log be lost too, theirs are the longest
  again.
- A leader that is still acceptable stays.
- A reassignment ends with the change that brings all of its target into the ISR, for any
  reason: in one record those that it removes leave replicas, ISR and leadership (`reassignment`).
- With eligible leader replicas off, the last member never leaves the ISR: while it is away the partition
  has no leader and waits for it. If several leave together, that is the leader.
- A change that alters nothing is no record. Every record raises the partition epoch; a record with a
  leader raises the leader epoch too. One that takes away replicas does so even if the leader stays: what a
  leader knows of a replica must not outlive it, as it may come back empty.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.driver.controller.machine.reassignment import Assignment
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import LeaderRecoveryState, PartitionChangeRecord
from sparklog.protocol.types import BrokerId, or_minus_one


class Election(Enum):
    ONLINE = "keep the leader while it may lead, else take another in-sync replica"
    PREFERRED = "take the first replica of the assignment if it is in sync, else as ONLINE"
    UNCLEAN = "as ONLINE, but take an original replica out of sync rather than have no leader"
    UNCLEAN_OF_ANY = "as UNCLEAN, but take a replica that is being added rather than have no leader"


class IsrRules(NamedTuple):
    unclean_election: bool
    min_in_sync_replicas: int
    eligible_leader_replicas: bool
    """Whether the cluster has the feature of KIP-966."""


class _Elected(NamedTuple):
    leader: BrokerId | None
    unclean: bool


def change_partition(
    partition: PartitionRegistration,
    topic_id: UUID,
    partition_id: int,
    may_lead: Callable[[BrokerId], bool],
    rules: IsrRules,
    election: Election,
    *,
    isr: tuple[BrokerId, ...] | None = None,
    lost_log: Collection[BrokerId] = (),
    longest_log: BrokerId | None = None,
    leader_recovery_state: LeaderRecoveryState | None = None,
    directories: tuple[UUID | None, ...] | None = None,
    assignment: Assignment | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that gives the partition the wanted ISR and the leader that follows from it.

    `isr`, `leader_recovery_state`, `directories` and `assignment` of None keep the present value;
    `directories` are those of the present replicas, an assignment has its own. `lost_log` are replicas that
    may have lost acknowledged records and so are no eligible leader replicas. `longest_log` has the longest
    log of the replicas, and leads when no replica is eligible. Returns None when nothing changes.
    """
    wanted_isr = partition.isr if isr is None else isr
    if not wanted_isr and partition.isr and not rules.eligible_leader_replicas:
        wanted_isr = _last_to_leave(partition, assignment, lost_log)
    wanted = Assignment.of(partition) if assignment is None else assignment
    if directories is not None:
        wanted = wanted._replace(directories=directories)
    if wanted.is_complete(wanted_isr):
        wanted = wanted.completed()
        wanted_isr = tuple(broker_id for broker_id in wanted_isr if broker_id in wanted.replicas)
    before, moves = partition, wanted.changes(partition)
    if moves:
        partition = replace(before, **moves)
    elr = _eligible_leader_replicas(partition, wanted_isr, lost_log, rules)
    leader, unclean = _elect(partition, wanted_isr, elr, may_lead, election, longest_log)

    recovery_state = (
        partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
    )
    changes: dict[str, Any] = {}
    if leader != partition.leader:
        changes["leader"] = or_minus_one(leader)
        if leader is not None and unclean:
            wanted_isr, elr = (leader,), ()
            recovery_state = LeaderRecoveryState.RECOVERING
        elif leader is not None and leader in elr:
            wanted_isr, elr = (leader,), tuple(broker_id for broker_id in elr if broker_id != leader)
            if not _commits_nothing(partition, wanted_isr, rules):
                elr = ()
            if wanted.is_complete(wanted_isr):
                # The leader is the target now, and perhaps no other change will follow.
                wanted = wanted.completed()
                moves = wanted.changes(before)
                partition, elr = replace(before, **moves), ()
    if rules.eligible_leader_replicas:
        has_longest_log = unclean and leader == longest_log
        last_known_elr = _last_known_elr(
            partition, wanted_isr, leader, rules, has_longest_log=has_longest_log
        )
        if last_known_elr != partition.last_known_elr:
            changes["last_known_elr"] = last_known_elr
    if wanted_isr != partition.isr:
        changes["isr"] = wanted_isr
    if elr != partition.elr:
        changes["eligible_leader_replicas"] = elr
    if recovery_state != partition.leader_recovery_state:
        changes["leader_recovery_state"] = int(recovery_state)
    changes |= moves
    if not set(before.replicas) <= set(wanted.replicas):
        changes.setdefault("leader", or_minus_one(leader))
    if not changes:
        return None
    return PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, **changes)


def _last_to_leave(
    partition: PartitionRegistration, assignment: Assignment | None, lost_log: Collection[BrokerId]
) -> tuple[BrokerId, ...]:
    """Return the member that stays when all leave an ISR that must not be empty: the leader if possible.

    No replica whose log is lost, while there is another.
    """
    replicas = partition.replicas if assignment is None else assignment.replicas
    may_stay = tuple(broker_id for broker_id in partition.isr if broker_id in replicas)
    staying = tuple(broker_id for broker_id in may_stay if broker_id not in lost_log) or may_stay
    return (partition.leader,) if partition.leader in staying else staying[-1:]


def _eligible_leader_replicas(
    partition: PartitionRegistration,
    wanted_isr: tuple[BrokerId, ...],
    lost_log: Collection[BrokerId],
    rules: IsrRules,
) -> tuple[BrokerId, ...]:
    """Return the replicas outside the ISR that hold every committed record.

    While the ISR is smaller than min.insync.replicas nothing is committed, so its members at the moment it
    became too small miss nothing.
    """
    if not rules.eligible_leader_replicas or not _commits_nothing(partition, wanted_isr, rules):
        return ()
    candidates = {*partition.elr, *partition.isr} - {*wanted_isr, *lost_log}
    return tuple(broker_id for broker_id in partition.replicas if broker_id in candidates)


def _last_known_elr(
    partition: PartitionRegistration,
    isr: tuple[BrokerId, ...],
    leader: BrokerId | None,
    rules: IsrRules,
    *,
    has_longest_log: bool,
) -> tuple[BrokerId, ...]:
    """Return the replicas to ask for the longest log when no replica surely has all records."""
    known = tuple(broker_id for broker_id in partition.last_known_elr if broker_id in partition.replicas)
    if leader is None:
        return known if partition.leader is None and known else _last_in_sync(partition)
    goes_on = has_longest_log or leader == partition.leader
    if not goes_on or not _commits_nothing(partition, isr, rules):
        return ()
    return tuple(broker_id for broker_id in known if broker_id != leader)


def _last_in_sync(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    """Return the replicas that may have every committed record: the last leader first."""
    others = {*partition.isr, *partition.elr, *partition.last_known_elr} - {partition.leader}
    last_leader = (partition.leader,) if partition.leader in partition.replicas else ()
    return (*last_leader, *(broker_id for broker_id in partition.replicas if broker_id in others))


def _commits_nothing(partition: PartitionRegistration, isr: tuple[BrokerId, ...], rules: IsrRules) -> bool:
    # As for the leader (`PartitionLeader.effective_min_insync_replicas`).
    return len(isr) < min(rules.min_in_sync_replicas, len(partition.original_replicas))


def _elect(
    partition: PartitionRegistration,
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    may_lead: Callable[[BrokerId], bool],
    election: Election,
    longest_log: BrokerId | None,
) -> _Elected:
    eligible = isr or elr
    replicas, leader = partition.replicas, partition.leader
    if leader is None:
        order = replicas
    elif election is Election.PREFERRED:
        order = (replicas[0], leader, *replicas)
    else:
        order = (leader, *replicas)
    for broker_id in order:
        if broker_id in eligible and may_lead(broker_id):
            return _Elected(broker_id, unclean=False)
    if not eligible and longest_log is not None and may_lead(longest_log):
        return _Elected(longest_log, unclean=True)
    if election in (Election.UNCLEAN, Election.UNCLEAN_OF_ANY):
        added = partition.adding_replicas if election is Election.UNCLEAN_OF_ANY else ()
        for broker_id in (*partition.original_replicas, *added):
            if may_lead(broker_id):
                return _Elected(broker_id, unclean=True)
    return _Elected(None, unclean=False)
