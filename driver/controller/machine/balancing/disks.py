"""The use of brokers' disks: measured by the brokers, and since then changed by the moves of replicas.

A broker's share is the part of the space for logs that logs take: their bytes, divided by these and the free
bytes. Other files of the host count as space that logs cannot have. Brokers whose directories lie in one file
system share it, and so have one share (`_Pool`): a move between them changes nothing.

Rules:

- A measurement counts as the present use only if no replica was on its way to or from the broker, and the
  files of those that left it were deleted, when it was made. Between such measurements the use is computed:
  the last one, with the replicas that have been assigned since, and without those that were taken away. So a
  copy is not counted twice, and a move never begins because an earlier one does not show yet.
- Moves keep measurements from counting, and those that are no longer true bring more moves about. So replicas
  that grow meanwhile count as large as they are reported, those of new partitions too, and none of partitions
  that are deleted. Shrinking ones do not: a copy is small at first.
- A broker that was away opens its logs and deletes those that it has lost meanwhile when it is back. So its
  measurements count as late as if a replica had left it then. A broker that is new has nothing to delete: its
  first measurement counts, in time for the moves to it.
- Brokers report the sizes of their largest replicas only. Another replica counts as the mean of the others.
- Nothing is known (`limits`) while one of the brokers concerned has not reported for `STALE_MS`, or its last
  measurement that counts is older than `OLDEST_MS`.

The bounds are those of Cruise Control in kind: its disk.capacity.threshold is 0.8, and its
disk.balance.threshold lets a broker differ from the mean by a tenth.

Pure. Order for the caller: `found` for each partition, and `went` for each broker that is away, at first;
`note_time` at each step; `changed` and `deleted` for changes of partitions, `went` and `came` for those of
brokers; `created`, `placed` and `removed` when replicas are decided, and `reported` at any time.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.node.metadata.image import PartitionRegistration
from sparklog.protocol.types import BrokerId, TopicIdPartition, TopicPartition

STALE_MS: Final = 60_000
OLDEST_MS: Final = 3_600_000
FULL_SHARE: Final = 0.8
TOLERANCE: Final = 0.05
"""The distance from the mean share that balancing leaves; it begins at twice that."""
_SMALLEST_AWAITED: Final = 1_000
"""A smaller part of the space for logs, if deleted, lets measurements count meanwhile: topics that come and
go all the time would keep them from it."""


class DiskVolume(NamedTuple):
    log_bytes: int
    """The size of the broker's logs in the file system."""
    free_bytes: int


class MeasuredDisks(NamedTuple):
    volumes: Mapping[Hashable, DiskVolume]
    """The file systems of its log directories, each by an identity that all brokers in it report."""
    replica_bytes: Mapping[TopicPartition, int]
    """The sizes of its largest replicas."""
    measured_ms: int
    """The measurement is not older than this."""

    def report(self, topic_id: Callable[[str], UUID | None], held: int) -> "DiskReport":
        """Return the same by topic ids, without unknown topics; the broker holds so many replicas."""
        other_bytes = sum(each.log_bytes for each in self.volumes.values()) - sum(self.replica_bytes.values())
        return DiskReport(
            self.volumes,
            {
                TopicIdPartition(found, number): size_bytes
                for (name, number), size_bytes in self.replica_bytes.items()
                if (found := topic_id(name)) is not None
            },
            max(0, other_bytes) // max(1, held - len(self.replica_bytes)),
            self.measured_ms,
        )


class DiskReport(NamedTuple):
    volumes: Mapping[Hashable, DiskVolume]
    replica_bytes: Mapping[TopicIdPartition, int]
    mean_of_others: int
    """The mean size in bytes of its other replicas."""
    measured_ms: int


@dataclass(slots=True, eq=False)
class _Pool:
    """The disks of brokers that share them; mostly of one broker."""

    brokers: frozenset[BrokerId]
    volumes: frozenset[Hashable]
    log_bytes: int = 0
    """The present use."""
    capacity_bytes: int = 0
    counted_ms: int | None = None
    """The time of the last measurement that counts; None if there is none."""
    newest_log_bytes: int = 0
    newest_capacity_bytes: int = 0

    def share(self, added_bytes: int = 0) -> float:
        return _share(self.log_bytes + added_bytes, self.capacity_bytes)

    def newest_share(self, added_bytes: int) -> float:
        """Return the share by the newest measurement, which may count replicas that come or go."""
        return _share(self.newest_log_bytes + added_bytes, self.newest_capacity_bytes)


class Disks:
    def __init__(self) -> None:
        self._reports: dict[BrokerId, DiskReport] = {}
        self._pools: dict[BrokerId, _Pool] = {}
        self._counted: defaultdict[BrokerId, dict[TopicIdPartition, int]] = defaultdict(dict)
        """The sizes with which replicas are in the present use: of those in the last measurement that counts,
        and of those that are assigned to a broker since."""
        self._moving: Counter[BrokerId] = Counter()
        """The number of replicas on their way to or from each broker."""
        self._changed_ms: dict[BrokerId, int] = {}
        """The time at which the last of them came or went."""
        self._away: set[BrokerId] = set()
        """The brokers that are away, or not active since they came back."""
        self._began_ms: int | None = None
        self._now_ms = 0
        self._settles_in_ms = 0

    def note_time(self, now_ms: int, settles_in_ms: int) -> None:
        """Note the time, and that after which the files of a replica that has left are deleted."""
        if self._began_ms is None:
            # A replica may have left a broker before this controller began.
            self._began_ms = now_ms
        self._now_ms = now_ms
        self._settles_in_ms = settles_in_ms

    def reported(self, broker_id: BrokerId, report: DiskReport) -> None:
        before = self._reports.get(broker_id)
        self._reports[broker_id] = report
        if before is None or before.volumes.keys() != report.volumes.keys():
            self._pool()
        pool, counted = self._pools[broker_id], self._counted[broker_id]
        for key, size_bytes in report.replica_bytes.items():
            if size_bytes > counted.get(key, size_bytes):
                pool.log_bytes += size_bytes - counted[key]
                counted[key] = size_bytes
        self._measure(pool)

    def found(self, partition: PartitionRegistration) -> None:
        """Note a partition that may be moving when the controller begins."""
        self._moving.update(_moving(partition))

    def changed(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        """Note the brokers to and from which replicas of a partition move, or have moved."""
        if before.replicas == after.replicas and not before.is_reassigning and not after.is_reassigning:
            return
        was, moving = _moving(before), _moving(after)
        self._moving.subtract(was)
        self._moving.update(moving)
        self._note_changed((was ^ moving) | (set(before.replicas) ^ set(after.replicas)))

    def deleted(self, before: PartitionRegistration) -> None:
        if before.is_reassigning:
            self._moving.subtract(_moving(before))
            self._note_changed(_moving(before))

    def went(self, broker_id: BrokerId) -> None:
        """Note that a broker is away."""
        self._away.add(broker_id)

    def came(self, broker_id: BrokerId) -> None:
        """Note that a broker is active, whether it was away or not."""
        if broker_id in self._away:
            self._away.remove(broker_id)
            self._note_changed((broker_id,))

    def _note_changed(self, brokers: Iterable[BrokerId]) -> None:
        self._changed_ms.update(dict.fromkeys(brokers, self._now_ms))

    def placed(
        self, partition: TopicIdPartition, before: Collection[BrokerId], after: Collection[BrokerId]
    ) -> None:
        """Count a partition's replicas where they are decided to be."""
        if not self._pools:
            return
        size_bytes = self.size_of(partition, before)
        for broker_id in before:
            if broker_id not in after and (pool := self._pools.get(broker_id)) is not None:
                counted_bytes = self._counted[broker_id].pop(partition, size_bytes)
                pool.log_bytes = max(0, pool.log_bytes - counted_bytes)
        for broker_id in after:
            if broker_id not in before and (pool := self._pools.get(broker_id)) is not None:
                pool.log_bytes += size_bytes
                self._counted[broker_id][partition] = size_bytes

    def created(self, partition: TopicIdPartition, replicas: Collection[BrokerId]) -> None:
        """Count a new partition's replicas, which are empty, where they are decided to be."""
        for broker_id in replicas:
            if broker_id in self._pools:
                self._counted[broker_id][partition] = 0

    def removed(self, partition: TopicIdPartition, replicas: Collection[BrokerId]) -> None:
        """Subtract a deleted partition's replicas where their sizes are in the present use."""
        for broker_id in replicas:
            pool, counted_bytes = self._pools.get(broker_id), self._counted[broker_id].pop(partition, 0)
            if pool is None or not counted_bytes:
                continue
            pool.log_bytes = max(0, pool.log_bytes - counted_bytes)
            if counted_bytes * _SMALLEST_AWAITED >= pool.capacity_bytes:
                self._note_changed((broker_id,))

    def size_of(self, partition: TopicIdPartition, replicas: Iterable[BrokerId]) -> int:
        """Return the size in bytes of a replica: the largest that is reported or counted, or else a mean."""
        brokers = [each for each in replicas if each in self._reports]
        reports = [self._reports[each] for each in brokers]
        sizes = [each.replica_bytes[partition] for each in reports if partition in each.replica_bytes]
        # A replica that has just moved to a broker is not in its report yet.
        sizes += filter(None, (self._counted[each].get(partition) for each in brokers))
        return max(sizes or [each.mean_of_others for each in reports], default=0)

    def largest(self, broker_id: BrokerId) -> list[tuple[int, TopicIdPartition]]:
        """Return the replicas whose sizes in bytes the broker reports, the largest first."""
        sizes = self._reports[broker_id].replica_bytes
        return [(sizes[each], each) for each in sorted(sizes, key=lambda each: (-sizes[each], each))]

    def is_too_full_for(self, broker_id: BrokerId, size_bytes: int) -> bool:
        """Whether the broker's disks would be too full with another replica; False if that is not known."""
        pool = self._pools.get(broker_id)
        if pool is None or not size_bytes or not self._is_known(broker_id):
            return False
        return max(pool.share(size_bytes), pool.newest_share(size_bytes)) > FULL_SHARE

    def limits(self, brokers: Collection[BrokerId]) -> "DiskLimits | None":
        """Return the bounds for the shares of brokers; None if one of them is not known."""
        if not brokers or not self._pools or not all(map(self._is_known, brokers)):
            return None
        return DiskLimits({each: self._pools[each] for each in brokers})

    def _is_known(self, broker_id: BrokerId) -> bool:
        report, pool = self._reports.get(broker_id), self._pools.get(broker_id)
        if report is None or pool is None or pool.counted_ms is None:
            return False
        return self._is_fresh(report) and self._now_ms - pool.counted_ms <= OLDEST_MS

    def _is_fresh(self, report: DiskReport) -> bool:
        return self._now_ms - report.measured_ms <= STALE_MS

    def _pool(self) -> None:
        """Put brokers into pools by their file systems; a pool that stays the same keeps its use."""
        known = {(pool.brokers, pool.volumes): pool for pool in self._pools.values()}
        groups: list[tuple[set[BrokerId], set[Hashable]]] = []
        for broker_id, report in self._reports.items():
            brokers, volumes = {broker_id}, set(report.volumes)
            apart = []
            for others, theirs in groups:
                if volumes.isdisjoint(theirs):
                    apart.append((others, theirs))
                else:
                    brokers, volumes = brokers | others, volumes | theirs
            groups = [*apart, (brokers, volumes)]
        self._pools = {}
        for brokers, volumes in groups:
            key = (frozenset(brokers), frozenset(volumes))
            self._pools |= dict.fromkeys(brokers, known.get(key) or _Pool(*key))

    def _measure(self, pool: _Pool) -> None:
        """Take over the newest measurements; those of brokers that are silent count as other files."""
        reports = {each: self._reports[each] for each in sorted(pool.brokers)}
        fresh = {each: report for each, report in reports.items() if self._is_fresh(report)}
        free: dict[Hashable, int] = {}
        for report in sorted(fresh.values(), key=lambda each: each.measured_ms):
            free |= {volume: use.free_bytes for volume, use in report.volumes.items()}
        log_bytes = sum(use.log_bytes for report in fresh.values() for use in report.volumes.values())
        pool.newest_log_bytes, pool.newest_capacity_bytes = log_bytes, log_bytes + sum(free.values())
        if fresh and all(self._is_settled(each, report) for each, report in fresh.items()):
            pool.log_bytes, pool.capacity_bytes = log_bytes, pool.newest_capacity_bytes
            pool.counted_ms = min(report.measured_ms for report in fresh.values())
            for each, report in fresh.items():
                self._counted[each] = dict(report.replica_bytes)

    def _is_settled(self, broker_id: BrokerId, report: DiskReport) -> bool:
        """Whether no replica came or went, or still lay there to be deleted, when a report was made.

        Of a broker that is away the replicas that it has lost are not deleted yet.
        """
        if self._moving[broker_id] > 0 or broker_id in self._away or self._began_ms is None:
            return False
        changed_ms = max(self._began_ms, self._changed_ms.get(broker_id, self._began_ms))
        return report.measured_ms >= changed_ms + self._settles_in_ms


class DiskLimits:
    """The bounds for the shares of some brokers, with the mean at the time of its making."""

    def __init__(self, pools: Mapping[BrokerId, _Pool]) -> None:
        self._pools = pools
        self._distinct = list(dict.fromkeys(pools.values()))
        self._mean = _share(
            sum(each.log_bytes for each in self._distinct),
            sum(each.capacity_bytes for each in self._distinct),
        )
        self._upper = max(self._mean, min(self._mean + TOLERANCE, FULL_SHARE - TOLERANCE))
        self._lower = self._mean - TOLERANCE

    @property
    def are_missed(self) -> bool:
        """Whether a broker is so far from the mean, or so full, that replicas should move."""
        return len(self._distinct) > 1 and any(
            each.share() > self._upper + TOLERANCE or each.share() < self._lower - TOLERANCE
            for each in self._distinct
        )

    def share_of(self, broker_id: BrokerId) -> float:
        return self._pools[broker_id].share()

    def is_over(self, broker_id: BrokerId) -> bool:
        """Whether the broker should have less."""
        return self._pools[broker_id].share() > self._upper

    def is_under(self, broker_id: BrokerId) -> bool:
        """Whether the broker should have more."""
        return self._pools[broker_id].share() < self._lower

    def excess_bytes(self, broker_id: BrokerId) -> float:
        """Return the bytes that the broker has above the mean."""
        pool = self._pools[broker_id]
        return pool.log_bytes - self._mean * pool.capacity_bytes

    def share_pool(self, one: BrokerId, other: BrokerId) -> bool:
        return self._pools[one] is self._pools[other]

    def allow(self, source: BrokerId, target: BrokerId, size_bytes: int) -> bool:
        """Whether a move keeps its target from being over the bounds, and its source from being under."""
        giving, taking = self._pools[source], self._pools[target]
        if giving is taking or not size_bytes:
            return True
        return (
            taking.share(size_bytes) <= self._upper
            and taking.newest_share(size_bytes) <= max(FULL_SHARE, self._upper)
            and giving.share(-size_bytes) >= self._lower
        )


def _moving(partition: PartitionRegistration) -> set[BrokerId]:
    return {*partition.adding_replicas, *partition.removing_replicas}


def _share(log_bytes: int, capacity_bytes: int) -> float:
    """Return the part of a capacity that is used; without any capacity it is full."""
    return log_bytes / capacity_bytes if capacity_bytes else 1.0
