"""The copies that brokers make for the controller's moves: a bounded number each, and for a bounded time.

A copy that takes longer than `OVERDUE_MS` is reported, and holds nothing up any longer: weaker goals are
pursued beside it. It is neither cancelled nor counted out: it may be of a terabyte, under a quota. Its broker
gets no further replicas before it is in sync, so a broker whose replicas never are gets no more of them.

Cruise Control reports slow movements likewise (task.execution.alerting.threshold.ms, 90 s and little data),
and ends only those whose brokers are dead; Kafka's reassignments wait for ever.
"""

from collections import Counter, OrderedDict
from typing import Final, NamedTuple

from sparklog.protocol.types import BrokerId, TopicIdPartition

COPIES_PER_BROKER: Final = 5
"""As Cruise Control's num.concurrent.partition.movements.per.broker."""
OVERDUE_MS: Final = 1_800_000


class Copy(NamedTuple):
    broker_ids: tuple[BrokerId, ...]
    """The brokers that copy the partition now."""
    since_ms: int


class CopySlots:
    def __init__(self) -> None:
        self._copies: OrderedDict[TopicIdPartition, Copy] = OrderedDict()
        """Those in time, in the order of their beginnings."""
        self._overdue: dict[TopicIdPartition, Copy] = {}
        self._taken: Counter[BrokerId] = Counter()
        """The number of copies that each broker makes, overdue ones included."""
        self._stuck: Counter[BrokerId] = Counter()
        """The number of overdue ones."""

    def __len__(self) -> int:
        """Return the number of partitions that are being copied in time."""
        return len(self._copies)

    def is_busy(self, broker_id: BrokerId) -> bool:
        return self._taken[broker_id] >= COPIES_PER_BROKER or self.is_stuck(broker_id)

    def is_stuck(self, broker_id: BrokerId) -> bool:
        """Whether one of the broker's copies is overdue."""
        return self._stuck[broker_id] > 0

    def note(self, key: TopicIdPartition, broker_ids: tuple[BrokerId, ...], now_ms: int) -> bool:
        """Note the brokers that copy a partition now, none at the end; return whether these are others."""
        before = self._copies.get(key) or self._overdue.get(key) or Copy((), now_ms)
        if broker_ids == before.broker_ids:
            return False
        is_overdue = key in self._overdue and not set(broker_ids).isdisjoint(before.broker_ids)
        self._forget(key)
        self._taken.update(broker_ids)
        if is_overdue:
            self._overdue[key] = Copy(broker_ids, before.since_ms)
            self._stuck.update(broker_ids)
        elif broker_ids:
            self._copies[key] = Copy(broker_ids, now_ms)
        return True

    def _forget(self, key: TopicIdPartition) -> None:
        if (copy := self._copies.pop(key, None)) is not None:
            self._taken.subtract(copy.broker_ids)
        if (copy := self._overdue.pop(key, None)) is not None:
            self._taken.subtract(copy.broker_ids)
            self._stuck.subtract(copy.broker_ids)

    def find_overdue(self, now_ms: int) -> dict[TopicIdPartition, Copy]:
        found = {}
        while self._copies:
            key = next(iter(self._copies))
            copy = self._copies[key]
            if now_ms - copy.since_ms < OVERDUE_MS:
                break
            del self._copies[key]
            found[key] = self._overdue[key] = copy
            self._stuck.update(copy.broker_ids)
        return found
