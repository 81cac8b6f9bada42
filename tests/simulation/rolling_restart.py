"""All brokers are restarted one by one, as for an upgrade, and nothing else happens: no group may notice.

A group that has settled before is in the same generation, or the same epoch, when the last broker is back.
"""

from typing import TYPE_CHECKING, Final

from sparklog.executor.coordinators.groups.machine.consumer.regular_expressions import MIN_REFRESH_INTERVAL_MS
from sparklog.protocol.types import BrokerId

if TYPE_CHECKING:
    from tests.simulation.cluster import World

_LOOK_MS: Final = 50
_WELL_LOOKS: Final = 30
"""How often all must have been well, one time after the other, before anything is done."""
_REFRESH_LOOKS: Final = MIN_REFRESH_INTERVAL_MS // _LOOK_MS
"""How often, besides, before the first restart: a group that has looked for its topics before there were any
looks again no earlier, and then begins a new epoch whether brokers are restarted or not."""
_LONGEST_MS: Final = 120_000


class RollingRestart:
    """Takes the place of `Faults`."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._left: list[BrokerId] = []
        self._epochs: dict[str, set[int]] = {}
        """In which generation or epoch each group was before, once all had settled."""
        self._well_looks = 0
        self._is_over = False

    def begin(self, end_ms: int) -> None:
        """Begin when all is well; followers that are slow would never all be in sync."""
        self._world.network.slow_share = 0.0
        self._look()

    def may_end(self, end_ms: int) -> bool:
        """Whether the last broker is back."""
        now_ms = self._world.scheduler.now_ms
        return self._is_over or now_ms > _LONGEST_MS

    def end(self) -> None:
        """See whether any group has noticed."""
        for group in self._world.member_groups:
            before = self._epochs.get(group.group_id)
            if before is None or before != group.epochs():
                self._world.rebalanced(group.group_id, before, group.epochs())

    def _look(self) -> None:
        world = self._world
        self._well_looks = self._well_looks + 1 if self._is_well() else 0
        if self._well_looks > self._looks_needed():
            if not self._epochs:
                self._epochs = {group.group_id: group.epochs() for group in world.member_groups}
                self._left = list(world.disks)
            if not self._left:
                self._is_over = True
                return
            broker = world.brokers[self._left.pop()]
            world.tell(None, f"SIGTERM of {broker.name}")
            world.outcome.faults += 1
            broker.after(0, broker.ask_to_stop)
        world.scheduler.after(_LOOK_MS, self._look)

    def _looks_needed(self) -> int:
        # The next assignment of a group may be waiting for its interval.
        looks = _WELL_LOOKS
        if not self._epochs and any(group.looks_for_topics for group in self._world.member_groups):
            looks += _REFRESH_LOOKS
        return looks

    def _is_well(self) -> bool:
        world = self._world
        image = world.metadata.image
        return (
            all(broker_id in world.brokers for broker_id in world.disks)
            and all(
                not image.brokers[broker_id].fenced for broker_id in world.disks if broker_id in image.brokers
            )
            and all(broker_id in image.brokers for broker_id in world.disks)
            and all(name in image.topics.by_name for name in world.topics)
            and all(
                partition.leader is not None and set(partition.isr) == set(partition.replicas)
                for topic in image.topics.by_id.values()
                for partition in topic.partitions.values()
            )
            and all(group.unsettled() is None for group in world.member_groups)
        )
