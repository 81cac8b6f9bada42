"""Numbers of groups by type and state, for metrics only.

Groups of a partition are counted by state at intervals, as in Kafka, and in steps. There may be a million
simple groups, which are not iterated: their number is that of the groups with offsets and nothing else.

Source: Kafka's GroupCoordinatorMetricsShard, GroupMetadataManager.updateClassicGroupSizeCounter.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroupState
from sparklog.executor.coordinators.groups.machine.expiration import STEP_ITEMS
from sparklog.executor.coordinators.groups.machine.group import GroupType
from sparklog.executor.coordinators.groups.machine.groups import Groups
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetStore
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord

COUNT_INTERVAL_MS: Final = 60_000

States = Mapping[tuple[GroupType, str], int]
"""Number of groups by type and state; simple groups count as empty classic ones."""


def counting_steps(
    groups: Groups, store: OffsetStore, counted: Callable[[States], None]
) -> Iterator[list[CoordinatorRecord]]:
    """Count the groups in steps; every step yields no records."""
    states: Counter[tuple[GroupType, str]] = Counter()
    with_offsets = 0
    for number, group_id in enumerate(groups.not_simple(), start=1):
        if number % STEP_ITEMS == 0:
            yield []
        group = groups.get(group_id)
        if group is not None:
            states[group.group_type, group.state_name] += 1
            with_offsets += store.has(group_id)
    states[GroupType.CLASSIC, ClassicGroupState.EMPTY] += max(0, store.group_count - with_offsets)
    counted(states)
