"""Healing and balancing: replicas leave brokers that are lost for good, and go to those that were added.

The rules:

- A broker that is away (fenced, shutting down or not registered) for `sparklog.replace.after.ms` is lost: its
  replicas are placed on other brokers (`moves_off`). A broker that comes back keeps the replicas that it
  still has. A driver counts the time from its own beginning, without pauses in which it did not run itself.
- Balancing begins when a broker is lost, and when one is unfenced for the first time, or after its loss, with
  less than half of its share of the replicas. Of the brokers that a driver finds when it takes over, or when
  balancing is switched on, only those count that hold nothing, or to which a reassignment is on its way. With
  `sparklog.balance.enable=always` it begins also at intervals, if brokers differ too much (`is_uneven`). It
  ends when a whole search finds no move; then preferred leaders are elected.
- Only the controller's moves are changed by it: this machine's, those off surplus brokers (`draining`), and
  all that were in progress when the driver took over. A reassignment of others stays as it is; its partition
  is not moved for balance for `LEFT_ALONE_MS`, unless it had to leave a broker that gets no replicas. A
  partition whose move was cancelled or replaced by others is not moved at all for that long.
- No partition without a leader moves: nothing could be copied. Only partitions whose replicas are all in sync
  on active brokers are moved for balance.
- A broker copies at most `COPIES_PER_BROKER` partitions at a time. A move counts until its new replicas are
  in sync, and only while there is a leader to copy from: it may wait long for its other replicas.
- Nothing moves in a cluster that is read-only, since it is about to stop.

All work is bounded: a step looks at some partitions and begins some moves, independent of the cluster's size.

Pure. Order for the caller: `changed` for each image in order; `step` now and then, when no decision is due
that matters more; its records are replayed before anything else is decided.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from sparklog.driver.controller.machine.balancing.moves import (
    Goal,
    Move,
    Search,
    Surroundings,
    changes_of_preferred_leaders,
    is_uneven,
    moves_between_racks,
    moves_off,
    moves_to_lighter_brokers,
)
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.partition_changes import Election
from sparklog.driver.controller.machine.requests.alter_reassignments import reassign
from sparklog.driver.controller.machine.sessions import LISTENING_GAP_MS
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.protocol.types import BrokerId, TopicIdPartition

logger = logging.getLogger(__name__)

COPIES_PER_BROKER: Final = 5
"""As Cruise Control's num.concurrent.partition.movements.per.broker."""
LEFT_ALONE_MS: Final = 3_600_000
_LOOKS_PER_STEP: Final = 20
"""A few milliseconds among a hundred brokers."""
_MOVES_PER_STEP: Final = 10
_READ_PER_STEP: Final = 100
"""Partitions that a controller that has just begun reads in a step, before it plans anything."""
_CHECK_INTERVAL_MS: Final = 1_000
_EXPIRY_INTERVAL_MS: Final = 60_000
_SMALL_SHARE: Final = 0.5


class Balancer:
    def __init__(self, cluster: ClusterState) -> None:
        """Take over at the cluster's image, whose partitions are read by the first steps."""
        self._cluster = cluster
        self._placed = PlacedReplicas()
        self._unread: Iterator[TopicIdPartition] | None = cluster.image.topics.keys()
        self._known_before = frozenset(cluster.image.brokers)
        self._growing: set[BrokerId] = set()
        """The brokers to which reassignments were on their way before."""
        self._moves: dict[TopicIdPartition, Move] = {}
        """This machine's reassignments that are in progress."""
        self._copying: dict[TopicIdPartition, tuple[BrokerId, ...]] = {}
        """The brokers that copy a partition for them now."""
        self._copies: Counter[BrokerId] = Counter()
        """The number of partitions that each broker copies so."""
        self._cancelled: dict[TopicIdPartition, int] = {}
        """Until when a partition is not moved at all."""
        self._placed_by_others: dict[TopicIdPartition, int] = {}
        """Until when a partition is not moved for balance."""
        self._last_step_ms: int | None = None
        self._checked_ms: int | None = None
        self._expired_ms = 0
        self._always_ms: int | None = None
        self._away_since_ms: dict[BrokerId, int] = {}
        self._lost: frozenset[BrokerId] = frozenset()
        self._active: dict[BrokerId, str | None] = {}
        """The brokers that may get replicas, with their racks."""
        self._seen: set[BrokerId] = set()
        """The brokers that were active, and not lost or surplus since: their return is no addition."""
        self._is_balancing = False
        self._evens_replicas = self._evens_leaders = False
        self._search: Search | None = None
        self._found = 0
        """The number of moves of the present search."""
        self._is_awaiting_sync = False
        """Whether the present search has passed over a partition whose replicas are about to get in sync."""
        self._are_racks_parted = False
        """Whether a search has found nothing to part, and only this machine has moved any since."""
        self._begun: set[TopicIdPartition] = set()
        """The partitions that the last step moved: the image of that step does not have their moves."""
        self._has_changed = True
        """Whether anything has changed since the last search began, so that another one may find moves."""

    def changed(self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta) -> None:
        """Take over the changes from one image to the next."""
        for topic_id in delta.deleted_topics:
            for number in before.topics.by_id[topic_id].partitions:
                self._partition_changed(TopicIdPartition(topic_id, number), None, None)
        for topic_id, numbers in delta.changed_topics.items():
            for number in sorted(numbers):
                key = TopicIdPartition(topic_id, number)
                was = before.topics.partition(topic_id, number)
                self._partition_changed(key, was, after.topics.partition(topic_id, number))

    def step(self, now_ms: int) -> list[MetadataRecord]:
        """Return the records that begin the next moves; none if there is nothing to move now."""
        self._note_pause(now_ms)
        if self._unread is not None:
            self._read(self._unread)
            return []
        if self._checked_ms is None or now_ms - self._checked_ms >= _CHECK_INTERVAL_MS:
            self._checked_ms = now_ms
            self._check(now_ms)
        if self._search is None:
            if not self._has_changed or not self._is_wanted:
                return []
            self._search, self._found, self._has_changed = self._searched(), 0, False
            self._is_awaiting_sync = False
        return self._begin_moves(self._search)

    @property
    def _is_wanted(self) -> bool:
        return self._is_balancing or any(self._placed.held.get(each) for each in self._lost)

    @property
    def _holders(self) -> set[BrokerId]:
        return {broker_id for broker_id, held in self._placed.held.items() if held}

    def _read(self, unread: Iterator[TopicIdPartition]) -> None:
        keys = list(islice(unread, _READ_PER_STEP))
        for key in keys:
            partition = self._cluster.image.topics.partition(*key)
            if partition is not None:
                self._placed.place(key, partition.target_replicas)
                if partition.is_reassigning:
                    self._adopt(key, partition)
        if len(keys) < _READ_PER_STEP:
            self._unread = None
            self._seen = (self._holders & self._known_before) - self._growing

    def _adopt(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        """Take over a reassignment that was in progress: most are those of the driver before."""
        self._growing.update(partition.adding_replicas)
        before, after = partition.original_replicas, partition.target_replicas
        self._moves[key] = Move(key, before, after, Goal.REPLICAS)
        self._note_copying(key, _copying(partition))

    def _partition_changed(
        self,
        key: TopicIdPartition,
        was: PartitionRegistration | None,
        partition: PartitionRegistration | None,
    ) -> None:
        if partition is None:
            self._placed.remove(key)
            self._move_ended(key)
            self._cancelled.pop(key, None)
            self._placed_by_others.pop(key, None)
            self._has_changed = True
            return
        target, move = partition.target_replicas, self._moves.get(key)
        if move is not None:
            if target != move.after:
                self._move_ended(key)
                if self._cluster.surplus.isdisjoint({*move.after} - {*target}):
                    self._cancelled[key] = self._after(LEFT_ALONE_MS)
            elif not partition.is_reassigning:
                self._move_ended(key)
            else:
                self._note_copying(key, _copying(partition))
        elif was is not None and was.target_replicas != target and self._is_preferred_by_others(was):
            self._placed_by_others[key] = self._after(LEFT_ALONE_MS)
        if self._placed.replicas.get(key) != target:
            self._placed.place(key, target)
            self._has_changed, self._are_racks_parted = True, False
        if was is None or _may_copy(was) != _may_copy(partition) or _is_whole(was) != _is_whole(partition):
            self._has_changed = True

    def _is_preferred_by_others(self, was: PartitionRegistration) -> bool:
        """Whether others moved a partition that could have stayed: each of its brokers may get replicas."""
        usable = {each.broker_id for each in self._cluster.usable_brokers()}
        return usable.issuperset(was.target_replicas)

    def _after(self, duration_ms: int) -> int:
        return (self._last_step_ms or 0) + duration_ms

    def _move_ended(self, key: TopicIdPartition) -> None:
        if self._moves.pop(key, None) is not None:
            self._has_changed = True
            self._note_copying(key, ())

    def _note_copying(self, key: TopicIdPartition, broker_ids: tuple[BrokerId, ...]) -> None:
        before = self._copying.pop(key, ())
        if broker_ids:
            self._copying[key] = broker_ids
        if broker_ids != before:
            self._copies.subtract(before)
            self._copies.update(broker_ids)
            self._has_changed = True

    def _note_pause(self, now_ms: int) -> None:
        """Count no time as away in which this controller did not run: brokers could not come back."""
        if self._last_step_ms is not None:
            pause_ms = now_ms - self._last_step_ms
            if pause_ms > LISTENING_GAP_MS:
                for broker_id in self._away_since_ms:
                    self._away_since_ms[broker_id] += pause_ms
        self._last_step_ms = now_ms

    def _check(self, now_ms: int) -> None:
        """Note the brokers that came, went or are lost, and whether to balance."""
        if now_ms - self._expired_ms >= _EXPIRY_INTERVAL_MS:
            self._expired_ms = now_ms
            self._expire(now_ms)
        cluster, config = self._cluster, self._cluster.config
        active = {
            each.broker_id: each.rack
            for each in cluster.usable_brokers()
            if cluster.is_active(each.broker_id)
        }
        known = self._holders | cluster.image.brokers.keys()
        for broker_id in sorted(known):
            if cluster.is_active(broker_id):
                self._away_since_ms.pop(broker_id, None)
            else:
                self._away_since_ms.setdefault(broker_id, now_ms)
        for broker_id in self._away_since_ms.keys() - known:
            del self._away_since_ms[broker_id]
        if config.sparklog_balance_enable == "false" or config.sparklog_read_only:
            self._give_up()
            return
        self._find_lost(config.sparklog_replace_after_ms, now_ms)
        self._find_newcomers(active, len(known - self._lost))
        if config.sparklog_balance_enable == "always":
            interval_ms = config.leader_imbalance_check_interval_seconds * 1_000
            if self._always_ms is None or now_ms - self._always_ms >= interval_ms:
                self._always_ms = now_ms
                self._is_balancing = True
        if active != self._active:
            self._active, self._search = active, None
            self._has_changed, self._are_racks_parted = True, False

    def _expire(self, now_ms: int) -> None:
        for left_alone in (self._cancelled, self._placed_by_others):
            for key in [key for key, until_ms in left_alone.items() if now_ms >= until_ms]:
                del left_alone[key]
                self._has_changed = True

    def _give_up(self) -> None:
        self._lost, self._active, self._search = frozenset(), {}, None
        self._seen = self._holders
        self._is_balancing = self._evens_replicas = self._evens_leaders = False

    def _find_lost(self, replace_after_ms: int, now_ms: int) -> None:
        lost = frozenset(
            broker_id
            for broker_id, since_ms in self._away_since_ms.items()
            if now_ms - since_ms >= replace_after_ms
        )
        for broker_id in sorted(lost - self._lost):
            if held := self._placed.held.get(broker_id):
                logger.warning(
                    "Broker %d has been away for %d s: its %d replicas are placed on other brokers",
                    broker_id,
                    (now_ms - self._away_since_ms[broker_id]) // 1_000,
                    len(held),
                )
                self._is_balancing = True
        if lost != self._lost:
            self._lost, self._search, self._has_changed = lost, None, True

    def _find_newcomers(self, active: Mapping[BrokerId, str | None], broker_count: int) -> None:
        replica_count = sum(map(len, self._placed.held.values()))
        for broker_id in sorted(active.keys() - self._seen):
            held = len(self._placed.held.get(broker_id, ()))
            if held < _SMALL_SHARE * replica_count / broker_count:
                logger.info(
                    "Broker %d has %d of the %d replicas of %d brokers: partitions are moved to it",
                    broker_id,
                    held,
                    replica_count,
                    broker_count,
                )
                self._is_balancing = True
                self._has_changed = True
        self._seen = (self._seen | active.keys()) - self._lost - self._cluster.surplus

    def _searched(self) -> Search:
        """Search for moves, for the stronger goals first."""
        placed = self._placed
        if self._lost:
            yield from moves_off(placed, self._surroundings(self._may_heal), self._lost)
            if self._found or self._copying:
                return
        if not self._is_balancing:
            return
        surroundings = self._surroundings(self._may_balance)
        if not self._are_racks_parted:
            yield from self._parted()
        self._evens_replicas |= is_uneven([len(placed.held.get(each, ())) for each in self._active])
        if self._evens_replicas:
            yield from moves_to_lighter_brokers(placed, surroundings)
        if self._found or self._copying:
            return
        self._evens_leaders |= is_uneven([placed.led[each] for each in self._active])
        if self._evens_leaders:
            yield from changes_of_preferred_leaders(placed, surroundings)

    def _parted(self) -> Search:
        """Search for moves between racks, of all partitions; not again before one of them may be found."""
        self._are_racks_parted = True

        def may_move(key: TopicIdPartition) -> bool:
            # Whether it moves now or not, there is something to part.
            self._are_racks_parted = False
            return self._may_balance(key)

        yield from moves_between_racks(self._placed, self._surroundings(may_move))

    def _surroundings(self, may_move: Callable[[TopicIdPartition], bool]) -> Surroundings:
        return Surroundings(
            self._active, may_move, lambda broker_id: self._copies[broker_id] >= COPIES_PER_BROKER
        )

    def _may_heal(self, key: TopicIdPartition) -> bool:
        partition = self._cluster.image.topics.partition(*key)
        return (
            partition is not None
            and (_may_copy(partition) or (self._is_own(key, partition) and partition.leader is not None))
            and key not in self._cancelled
            and key not in self._begun
        )

    def _is_own(self, key: TopicIdPartition, partition: PartitionRegistration) -> bool:
        return key in self._moves or not self._cluster.surplus.isdisjoint(partition.removing_replicas)

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
        if not _is_whole(partition):
            self._is_awaiting_sync = True
            return False
        return True

    def _is_online(self, partition: PartitionRegistration, broker_id: BrokerId) -> bool:
        registration = self._cluster.image.brokers.get(broker_id)
        return (
            broker_id in self._active
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
        election = Election.PREFERRED if move.goal is Goal.LEADERS else None
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
        is_settled = not self._copying and not self._is_awaiting_sync
        is_at_end = not self._has_changed and is_settled and self._away_since_ms.keys() <= self._lost
        if is_at_end and self._is_balancing:
            self._end_balancing()

    def _end_balancing(self) -> None:
        logger.info("Balance: no move is left")
        cluster = self._cluster
        self._is_balancing = self._evens_replicas = self._evens_leaders = False
        if cluster.config.auto_leader_rebalance_enable:
            cluster.unsettled.note_preferred(cluster.topic_index.led_by_another)


def _may_copy(partition: PartitionRegistration) -> bool:
    """Whether a reassignment of the partition can begin: there is a leader to copy from, and no other one."""
    return partition.leader is not None and not partition.is_reassigning


def _is_whole(partition: PartitionRegistration) -> bool:
    return len(partition.isr) == len(partition.replicas)


def _copying(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    """Return the brokers that copy the partition for its reassignment."""
    if partition.leader is None:
        return ()
    return tuple(each for each in partition.adding_replicas if each not in partition.isr)
