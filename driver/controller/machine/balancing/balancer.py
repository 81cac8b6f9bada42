"""Healing, draining and balancing: replicas leave brokers that are lost or surplus, and go to those added.

The rules:

- A broker that is away (fenced, shutting down or not registered) for `sparklog.replace.after.ms` is lost: its
  replicas are placed on other brokers (`moves_off`). A broker that comes back keeps the replicas that it
  still has (`broker_roles`).
- Surplus brokers, beyond the configured size of the cluster, are emptied in the same way, also while
  `sparklog.balance.enable` is `false`: the size is an administrator's decision. Such a move replaces replicas
  on lost brokers, too, since it could not be complete with them. If the size is raised again, moves off
  brokers that stay after all are cancelled, and finished ones stay.
- Balancing begins when a broker is lost, when it is back, and when one is unfenced for the first time with
  less than half of its share of the replicas. One that is back may have all of its replicas: those without a
  leader stayed, and balancing ended without them. Of the brokers that a driver finds when it takes over, or
  when balancing is switched on, only those count that hold nothing, or to which a reassignment is on its way.
  With `sparklog.balance.enable=always` it begins also at intervals, if brokers differ too much (`goals`). It
  ends when a whole search finds no move; then preferred leaders are elected.
- Only the controller's moves are changed by it: this machine's, and all that were in progress when the driver
  took over. A reassignment of others stays as it is, unless one of its brokers is surplus; its partition is
  not moved for balance for a while (`left_alone`), unless it had to leave a broker that gets no replicas. A
  partition whose move was cancelled or replaced by others is moved off surplus brokers alone for as long.
- No partition without a leader moves: nothing could be copied. Only partitions whose replicas are all in sync
  on active brokers are moved for balance. None moves right after a change of its leader (`recent_leaders`).
- A broker copies few partitions at a time (`copy_slots`). A move counts until its new replicas are in sync,
  and only while there is a leader to copy from: it may wait long for its other replicas.
- Nothing moves in a cluster that is read-only, since it is about to stop.
- Disks and traffic count where they are known (`disks`, `leader_traffic`); without reports everything is as
  if there were no such goals. A broker that is added reports them after some minutes only: balancing that has
  ended until then begins again.

All work is bounded: a step looks at some partitions and begins some moves, independent of the cluster's size.

Pure. Order for the caller: `changed` for each image in order; `step` now and then, when no decision is due
that matters more; its records are replayed before anything else is decided.
"""

import logging
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final
from uuid import UUID

from sparklog.driver.controller.machine.balancing.broker_roles import BrokerRoles
from sparklog.driver.controller.machine.balancing.copy_slots import CopySlots
from sparklog.driver.controller.machine.balancing.disks import MeasuredDisks
from sparklog.driver.controller.machine.balancing.goals import GOALS, PursuedGoal
from sparklog.driver.controller.machine.balancing.leader_traffic import MeasuredTraffic
from sparklog.driver.controller.machine.balancing.left_alone import LeftAlone
from sparklog.driver.controller.machine.balancing.moves import Goal, Move, Search, Surroundings, moves_off
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.partition_changes import Election
from sparklog.driver.controller.machine.requests.alter_reassignments import cancel, reassign
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId, TopicIdPartition

logger = logging.getLogger(__name__)

_LOOKS_PER_STEP: Final = 10
"""A few milliseconds among a hundred brokers."""
_MOVES_PER_STEP: Final = 5
_CHECK_INTERVAL_MS: Final = 1_000
_LOADS_AWAITED_MS: Final = 900_000
"""Longer than a broker that was added, and gets replicas, takes to report its disks and traffic."""
_REMOVED_WITHIN_MS: Final = 2_000
"""The time in which a broker applies the record by which a replica leaves it."""


class Balancer:
    def __init__(self, cluster: ClusterState) -> None:
        """Take over at the cluster's image: look through all of its partitions."""
        self._cluster = cluster
        self._placed = PlacedReplicas()
        self._roles = BrokerRoles(cluster)
        self._moves: dict[TopicIdPartition, Move] = {}
        """This machine's reassignments that are in progress."""
        self._slots = CopySlots()
        """The copies that are made for them now."""
        self._to_cancel: dict[TopicIdPartition, None] = {}
        """Those off brokers that stay after all."""
        self._cancelled = LeftAlone()
        self._placed_by_others = LeftAlone()
        """Partitions that are not moved for balance."""
        self._now_ms = 0
        """The time of the last step."""
        self._checked_ms: int | None = None
        self._is_balancing = False
        self._pursued: set[Goal] = set()
        """The goals that were missed since balancing began: their searches go on to the end."""
        self._search: Search | None = None
        self._found = 0
        """The number of moves of the present search."""
        self._is_awaiting_sync = False
        """Whether the present search has passed over a partition whose replicas are about to get in sync, or
        whose leader has just changed."""
        self._rests_ended = 0
        """The rests of leaders that had ended before the last step."""
        self._are_racks_parted = False
        """Whether a search has found nothing to part, and only this machine has moved any since."""
        self._begun: set[TopicIdPartition] = set()
        """The partitions that the last step moved: the image of that step does not have their moves."""
        self._has_changed = True
        """Whether anything has changed since the last search began, so that another one may find moves."""
        self._are_loads_known = (False, False)
        """Whether the reports of disks are complete, and those of traffic."""
        self._loads_awaited_until_ms = 0
        """The time until which balancing that has ended without one of them begins again with it."""
        self._take_over()

    def changed(self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta) -> None:
        """Take over the changes from one image to the next."""
        for topic_id in delta.deleted_topics:
            for number, partition in before.topics.by_id[topic_id].partitions.items():
                self._partition_deleted(TopicIdPartition(topic_id, number))
                self._placed.disks.deleted(partition)
        if delta.changed_brokers:
            self._roles.brokers_changed(self._placed.disks, before, delta.changed_brokers)
        for topic_id, numbers in delta.changed_topics.items():
            partitions = after.topics.by_id[topic_id].partitions
            for number in sorted(numbers):
                key = TopicIdPartition(topic_id, number)
                self._partition_changed(key, before.topics.partition(topic_id, number), partitions[number])

    def disks_reported(self, broker_id: BrokerId, measured: MeasuredDisks) -> None:
        """Note the use of a broker's disks; sizes of partitions that are not known are left out."""
        held = len(self._placed.held.get(broker_id, ()))
        self._placed.disks.reported(broker_id, measured.report(self._topic_id, held))

    def traffic_reported(self, broker_id: BrokerId, measured: MeasuredTraffic | None) -> None:
        """Note the traffic of a broker's leaders; None if it has not measured for long enough."""
        traffic = self._placed.traffic
        if measured is None:
            traffic.unmeasured(broker_id)
            return
        rates, replicas = measured.by_id(self._topic_id), self._placed.replicas
        traffic.reported(broker_id, measured.whole, rates, replicas, measured.measured_ms)

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._cluster.image.topics.by_name.get(name)
        return None if topic is None else topic.topic_id

    def step(self, now_ms: int) -> list[MetadataRecord]:
        """Return the records that begin the next moves; none if there is nothing to move now."""
        self._now_ms = now_ms
        self._roles.note_step(now_ms)
        deleted_in_ms = self._cluster.config.log_segment_delete_delay_ms + _REMOVED_WITHIN_MS
        self._placed.note_time(now_ms, deleted_in_ms)
        if self._checked_ms is None:
            self._note_adopted()
        if self._checked_ms is None or now_ms - self._checked_ms >= _CHECK_INTERVAL_MS:
            self._checked_ms = now_ms
            self._check(now_ms)
        if self._rests_ended != self._cluster.recent_leaders.ended:
            self._rests_ended, self._has_changed = self._cluster.recent_leaders.ended, True
        if self._to_cancel and not self._cluster.config.sparklog_read_only:
            return self._cancel_next()
        if self._search is None:
            if not self._has_changed or not self._is_wanted:
                return []
            self._search, self._found, self._has_changed = self._searched(), 0, False
            self._is_awaiting_sync = False
        return self._begin_moves(self._search)

    @property
    def _is_wanted(self) -> bool:
        return self._is_balancing or any(self._placed.held.get(each) for each in self._roles.emptied)

    def _take_over(self) -> None:
        """Note all replicas, and the reassignments in progress: most are those of the driver before."""
        growing: set[BrokerId] = set()
        for key, partition in self._cluster.image.topics.partitions():
            self._placed.place(key, partition.target_replicas)
            if partition.is_reassigning:
                self._placed.disks.found(partition)
                growing.update(partition.adding_replicas)
                before, after = partition.original_replicas, partition.target_replicas
                self._moves[key] = Move(key, before, after, Goal.REPLICAS)
        self._roles.begin(self._placed, growing)

    def _note_adopted(self) -> None:
        """Let the copies that were in progress begin now: their true times are not known."""
        for key in self._moves:
            partition = self._cluster.image.topics.partition(*key)
            if partition is not None:
                self._slots.note(key, _copying(partition), self._now_ms)

    def _partition_deleted(self, key: TopicIdPartition) -> None:
        self._placed.remove(key)
        self._move_ended(key)
        self._cancelled.discard(key)
        self._placed_by_others.discard(key)
        self._has_changed = True

    def _partition_changed(
        self, key: TopicIdPartition, was: PartitionRegistration | None, partition: PartitionRegistration
    ) -> None:
        if was is not None:
            self._placed.disks.changed(was, partition)
        target, move = partition.target_replicas, self._moves.get(key)
        is_decided_here = self._placed.replicas.get(key) == target
        if move is not None:
            if target != move.after:
                self._move_ended(key)
                self._cancelled.add(key, self._now_ms)
            elif not partition.is_reassigning:
                self._move_ended(key)
            else:
                self._note_copying(key, _copying(partition))
        elif (
            was is not None
            and was.target_replicas != target
            and not is_decided_here
            and self._roles.usable.issuperset(was.target_replicas)
        ):
            self._placed_by_others.add(key, self._now_ms)
        if not is_decided_here:
            self._placed.place(key, target)
            self._has_changed, self._are_racks_parted = True, False
        if was is None or _may_copy(was) != _may_copy(partition) or _is_whole(was) != _is_whole(partition):
            self._has_changed = True

    def _move_ended(self, key: TopicIdPartition) -> None:
        if self._moves.pop(key, None) is not None:
            self._has_changed = True
            self._note_copying(key, ())

    def _note_copying(self, key: TopicIdPartition, broker_ids: tuple[BrokerId, ...]) -> None:
        if self._checked_ms is not None and self._slots.note(key, broker_ids, self._now_ms):
            self._has_changed = True

    def _check(self, now_ms: int) -> None:
        if self._cancelled.expire(now_ms) | self._placed_by_others.expire(now_ms):
            self._has_changed = True
        self._report_overdue(now_ms)
        change = self._roles.check(self._placed, now_ms)
        if change.is_off and self._is_balancing:
            self._end_pursuit()
            self._search, self._has_changed = None, True
        if change.begins_balancing:
            # Loads change while the image does not.
            self._is_balancing = self._has_changed = True
        are_known = (
            self._placed.disks.limits(self._roles.active) is not None,
            self._placed.traffic.is_known(self._roles.active),
        )
        if any(now and not before for now, before in zip(are_known, self._are_loads_known, strict=True)):
            self._has_changed = True
            self._is_balancing |= now_ms < self._loads_awaited_until_ms and not change.is_off
        self._are_loads_known = are_known
        if change.staying:
            self._note_staying(change.staying)
        if change.has_changed:
            self._search = None
            self._has_changed, self._are_racks_parted = True, False

    def _report_overdue(self, now_ms: int) -> None:
        found = self._slots.find_overdue(now_ms)
        if not found:
            return
        self._has_changed = True
        topics = self._cluster.image.topics.by_id
        key, copy = next(iter(found.items()))
        logger.warning(
            "%d partitions have been copied for more than %d s, the first is %s-%d, to brokers %s: "
            "these get no further replicas before they are in sync, look at their logs",
            len(found),
            (now_ms - copy.since_ms) // 1_000,
            topics[key.topic_id].name,
            key.partition,
            list(copy.broker_ids),
        )

    def _note_staying(self, staying: Collection[BrokerId]) -> None:
        for key in self._moves:
            partition = self._cluster.image.topics.partition(*key)
            if partition is not None and not set(staying).isdisjoint(partition.removing_replicas):
                self._to_cancel[key] = None

    def _cancel_next(self) -> list[MetadataRecord]:
        """Cancel some of the moves off brokers that stay after all."""
        records: list[MetadataRecord] = []
        for key in list(islice(self._to_cancel, _MOVES_PER_STEP)):
            del self._to_cancel[key]
            topic = self._cluster.image.topics.by_id.get(key.topic_id)
            partition = None if topic is None else topic.partitions.get(key.partition)
            if topic is None or partition is None or not partition.is_reassigning or key not in self._moves:
                continue
            originals, isr = set(partition.original_replicas), set(partition.isr)
            if not (isr <= originals or originals <= isr):
                # A copy is in sync in place of an original: without it records would be on fewer brokers.
                continue
            try:
                record = cancel(self._cluster, topic, key.partition, partition)
            except KafkaError as error:
                logger.info("A move off a broker that stays goes on: %s", error)
                continue
            assert record is not None, "the replicas change"
            self._placed.place(key, partition.original_replicas)
            self._move_ended(key)
            records.append(record)
        if records:
            logger.info("%d moves off brokers that stay after all are cancelled", len(records))
        return records

    def _end_pursuit(self) -> None:
        self._is_balancing = False
        self._pursued.clear()

    def _searched(self) -> Search:
        """Search for moves, for the stronger goals first."""
        roles = self._roles
        if roles.emptied:
            surroundings, leaving = self._surroundings(self._may_leave), roles.lost | roles.surplus
            yield from moves_off(self._placed, surroundings, leaving, roles.emptied)
            if self._found or self._slots:
                return
        if not self._is_balancing:
            return
        for goal in GOALS:
            if goal.awaits_copies and (self._found or self._slots):
                return
            yield from self._moves_for(goal)

    def _moves_for(self, pursued: PursuedGoal) -> Search:
        surroundings = self._surroundings(self._may_balance)
        if pursued.goal is Goal.RACKS:
            if self._are_racks_parted:
                return
            surroundings = self._surroundings(self._may_part)
            self._are_racks_parted = True
        if pursued.is_missed(self._placed, surroundings):
            self._pursued.add(pursued.goal)
        if pursued.goal in self._pursued:
            yield from pursued.search(self._placed, surroundings)

    def _surroundings(self, may_move: Callable[[TopicIdPartition], bool]) -> Surroundings:
        roles, slots = self._roles, self._slots
        return Surroundings(roles.active, may_move, slots.is_busy, slots.is_stuck, roles.racks)

    def _may_leave(self, key: TopicIdPartition) -> bool:
        """Whether the partition may be moved off brokers that are lost or surplus."""
        partition = self._cluster.image.topics.partition(*key)
        if partition is None or partition.leader is None or key in self._begun:
            return False
        if key in self._cluster.recent_leaders:
            self._is_awaiting_sync = True
            return False
        if not self._roles.surplus.isdisjoint(partition.replicas):
            return True
        if self._cluster.config.sparklog_balance_enable == "false":
            return False
        return (not partition.is_reassigning or key in self._moves) and key not in self._cancelled

    def _may_part(self, key: TopicIdPartition) -> bool:
        # Whether it moves now or not, there is something to part.
        self._are_racks_parted = False
        return self._may_balance(key)

    def _may_balance(self, key: TopicIdPartition) -> bool:
        partition = self._cluster.image.topics.partition(*key)
        if (
            partition is None
            or not _may_copy(partition)
            or key in self._cancelled
            or key in self._placed_by_others
            or key in self._begun
            or not all(self._is_online(partition, each) for each in partition.replicas)
        ):
            return False
        if not _is_whole(partition) or key in self._cluster.recent_leaders:
            self._is_awaiting_sync = True
            return False
        return True

    def _is_online(self, partition: PartitionRegistration, broker_id: BrokerId) -> bool:
        registration = self._cluster.image.brokers.get(broker_id)
        return (
            broker_id in self._roles.active
            and registration is not None
            and registration.has_online_directory(partition.directory_of(broker_id))
        )

    def _begin_moves(self, search: Search) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        self._begun.clear()
        for _ in range(_LOOKS_PER_STEP):
            try:
                move = next(search)
            except StopIteration:
                self._search_ended()
                break
            if move is not None:
                records.append(self._begin(move))
                if len(records) >= _MOVES_PER_STEP:
                    break
        return records

    def _begin(self, move: Move) -> MetadataRecord:
        key = move.partition
        topic = self._cluster.image.topics.by_id[key.topic_id]
        election = None if move.added else Election.PREFERRED
        partition = topic.partitions[key.partition]
        record = reassign(self._cluster, topic, key.partition, partition, move.after, election)
        assert record is not None, "a move changes the replicas"
        self._placed.place(key, move.after)
        self._move_ended(key)
        self._moves[key] = move
        self._note_copying(key, move.added)
        self._begun.add(key)
        self._found += 1
        return record

    def _search_ended(self) -> None:
        self._search = None
        if self._found:
            logger.debug("Balance: %d moves found, %d in progress", self._found, len(self._moves))
            self._has_changed = True
            return
        # Partitions of a broker that is away for a moment are balanced when it is back and in sync.
        is_settled = not self._slots and not self._is_awaiting_sync
        is_at_end = not self._has_changed and is_settled and not self._roles.is_any_away
        if is_at_end and self._is_balancing:
            self._end_balancing()

    def _end_balancing(self) -> None:
        logger.info("Balance: no move is left")
        cluster = self._cluster
        if not all(self._are_loads_known):
            self._loads_awaited_until_ms = self._now_ms + _LOADS_AWAITED_MS
        self._end_pursuit()
        if cluster.config.auto_leader_rebalance_enable:
            cluster.unsettled.note_preferred(cluster.topic_index.led_by_another)


def _may_copy(partition: PartitionRegistration) -> bool:
    """Whether a reassignment of the partition can begin: there is a leader to copy from, and no other one."""
    return partition.leader is not None and not partition.is_reassigning


def _is_whole(partition: PartitionRegistration) -> bool:
    return len(partition.isr) == len(partition.replicas)


def _copying(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    if partition.leader is None:
        return ()
    return tuple(each for each in partition.adding_replicas if each not in partition.isr)
