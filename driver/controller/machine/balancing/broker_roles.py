"""The part of each broker in balancing: it may get replicas, is lost, leaves, or was added.

Pure. Order for the caller: `brokers_changed` for each image with other brokers; `note_step` often; `begin`
once all partitions are read, then `check` now and then.

The time for which each broker has been away, so that it counts as lost in the end.

A controller counts from its own beginning, and without pauses in which it did not run itself: brokers could
not come back then.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.driver.controller.machine.balancing.disks import Disks
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.sessions import LISTENING_GAP_MS
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)


class Absences:
    def __init__(self) -> None:
        self._since_ms: dict[BrokerId, int] = {}
        self._last_step_ms: int | None = None

    @property
    def away(self) -> Collection[BrokerId]:
        return self._since_ms.keys()

    def note_step(self, now_ms: int) -> None:
        """Note that the controller runs; to be called often, with the time of each step."""
        if self._last_step_ms is not None:
            pause_ms = now_ms - self._last_step_ms
            if pause_ms > LISTENING_GAP_MS:
                for broker_id in self._since_ms:
                    self._since_ms[broker_id] += pause_ms
        self._last_step_ms = now_ms

    def look(self, known: Collection[BrokerId], is_active: Callable[[BrokerId], bool], now_ms: int) -> None:
        """Note the brokers that are away; those that are not `known` are forgotten."""
        away = sorted(each for each in known if not is_active(each))
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in away}

    def duration_ms(self, broker_id: BrokerId, now_ms: int) -> int:
        return now_ms - self._since_ms[broker_id]

    def longer_than(self, duration_ms: int, now_ms: int) -> frozenset[BrokerId]:
        return frozenset(
            each for each, since_ms in self._since_ms.items() if now_ms - since_ms >= duration_ms
        )


_SMALL_SHARE: Final = 0.5


@dataclass(slots=True)
class RolesChange:
    has_changed: bool = False
    """Whether other moves are possible than before."""
    begins_balancing: bool = False
    is_off: bool = False
    """Whether nothing is balanced now."""
    staying: frozenset[BrokerId] = frozenset()
    """The brokers that left the cluster before, and stay after all."""


class BrokerRoles:
    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._known_before = frozenset(cluster.image.brokers)
        self._absences = Absences()
        self.lost: frozenset[BrokerId] = frozenset()
        self.surplus: frozenset[BrokerId] = cluster.surplus
        self.emptied: frozenset[BrokerId] = frozenset()
        """The lost and surplus brokers that replicas are moved off."""
        self.active: Mapping[BrokerId, str | None] = {}
        """The brokers that may get replicas, with their racks."""
        self.racks: Mapping[BrokerId, str | None] = {}
        """The racks of all registered brokers."""
        self.usable: frozenset[BrokerId] = frozenset()
        """The brokers, active or not, that may get replicas when they are."""
        self._seen: frozenset[BrokerId] = frozenset()
        """The brokers that were active, and not lost or surplus since: their return is no addition."""
        self._always_ms: int | None = None
        self._registrations_changed()

    @property
    def is_any_away(self) -> bool:
        """Whether a broker is away that may be back before it is lost."""
        return not self.lost.issuperset(self._absences.away)

    def brokers_changed(self, disks: Disks, before: MetadataImage, changed: Collection[BrokerId]) -> None:
        """Take over the registrations that an image has changed, and note the brokers that went and came."""
        self._registrations_changed()
        for broker_id in sorted(changed):
            was, now = before.brokers.get(broker_id), self._cluster.image.brokers.get(broker_id)
            is_active = self._cluster.is_active(broker_id)
            if was is not None and (not is_active or now is None or now.broker_epoch != was.broker_epoch):
                disks.went(broker_id)
            if is_active:
                disks.came(broker_id)

    def _registrations_changed(self) -> None:
        self.usable = frozenset(each.broker_id for each in self._cluster.usable_brokers())
        self.racks = {each: broker.rack for each, broker in self._cluster.image.brokers.items()}

    def note_step(self, now_ms: int) -> None:
        self._absences.note_step(now_ms)

    def begin(self, placed: PlacedReplicas, growing: Collection[BrokerId]) -> None:
        """Begin with the replicas that a driver has found; moves to those in `growing` were on their way."""
        self._seen = (_holders(placed) & self._known_before) - frozenset(growing)
        for broker_id in self._cluster.image.brokers:
            if not self._cluster.is_active(broker_id):
                placed.disks.went(broker_id)

    def check(self, placed: PlacedReplicas, now_ms: int) -> RolesChange:
        """Note the brokers that came, went, are lost or surplus, and whether to balance."""
        cluster, config, change = self._cluster, self._cluster.config, RolesChange()
        self._registrations_changed()
        change.staying = self._note_surplus(cluster.surplus)
        holders = _holders(placed)
        known = holders | cluster.image.brokers.keys()
        self._absences.look(known, cluster.is_active, now_ms)
        lost = self._absences.longer_than(config.sparklog_replace_after_ms, now_ms)
        active = {each: cluster.image.brokers[each].rack for each in self.usable if cluster.is_active(each)}
        if config.sparklog_read_only or config.sparklog_balance_enable == "false":
            # Of lost brokers only the replicas beside those of surplus ones: a drain could not end with them.
            is_draining = self.surplus and not config.sparklog_read_only
            emptied = self.surplus | lost if is_draining else frozenset()
            change.is_off, self._seen = True, holders
        else:
            emptied = self.surplus | lost
            is_any_lost = self._note_lost((emptied - self.emptied) & lost, placed, now_ms)
            is_any_new = self._note_added(active, placed, len(known - lost))
            is_any_new |= not active.keys().isdisjoint(self.lost)
            self._seen = (self._seen | active.keys()) - self.surplus - lost
            change.begins_balancing = is_any_lost or is_any_new or self._is_always_due(now_ms)
            change.has_changed = is_any_new
        if (active, lost, emptied) != (self.active, self.lost, self.emptied):
            self.active, self.lost, self.emptied = active, lost, emptied
            change.has_changed = True
        return change

    def _note_surplus(self, surplus: frozenset[BrokerId]) -> frozenset[BrokerId]:
        added, staying, self.surplus = surplus - self.surplus, self.surplus - surplus, surplus
        if added:
            logger.info("Brokers %s leave the cluster: their replicas move", sorted(added))
        return staying

    def _note_lost(self, lost: Collection[BrokerId], placed: PlacedReplicas, now_ms: int) -> bool:
        is_any = False
        for broker_id in sorted(lost):
            if held := placed.held.get(broker_id):
                logger.warning(
                    "Broker %d has been away for %d s: its %d replicas are placed on other brokers",
                    broker_id,
                    self._absences.duration_ms(broker_id, now_ms) // 1_000,
                    len(held),
                )
                is_any = True
        return is_any

    def _note_added(self, active: Collection[BrokerId], placed: PlacedReplicas, broker_count: int) -> bool:
        replica_count = sum(map(len, placed.held.values()))
        is_any = False
        for broker_id in sorted(frozenset(active) - self._seen):
            held = len(placed.held.get(broker_id, ()))
            if held < _SMALL_SHARE * replica_count / broker_count:
                logger.info(
                    "Broker %d has %d of the %d replicas of %d brokers: partitions are moved to it",
                    broker_id,
                    held,
                    replica_count,
                    broker_count,
                )
                is_any = True
        return is_any

    def _is_always_due(self, now_ms: int) -> bool:
        config = self._cluster.config
        if config.sparklog_balance_enable != "always":
            return False
        interval_ms = config.leader_imbalance_check_interval_seconds * 1_000
        if self._always_ms is not None and now_ms - self._always_ms < interval_ms:
            return False
        self._always_ms = now_ms
        return True


def _holders(placed: PlacedReplicas) -> frozenset[BrokerId]:
    return frozenset(broker_id for broker_id, held in placed.held.items() if held)
