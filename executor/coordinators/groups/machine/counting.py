"""How many groups there are in which state: for metrics, nothing depends on it.

Groups of a partition are counted by state now and then, as Kafka does, and some of them at a time. Of simple
groups there may be a million, which nobody goes through: they are those with offsets that are nothing else.

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
from sparklog.executor.coordinators.machine.decision import CoordinatorRecord

COUNT_INTERVAL_MS: Final = 60_000

States = Mapping[tuple[GroupType, str], int]
"""How many groups are of a type and in a state; simple ones are empty classic ones."""


def counting_steps(
    groups: Groups, store: OffsetStore, counted: Callable[[States], None]
) -> Iterator[list[CoordinatorRecord]]:
    """Count the groups, some in a step; nothing is to be written."""
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
