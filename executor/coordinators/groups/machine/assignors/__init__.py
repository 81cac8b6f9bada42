"""Who of a consumer group reads what: the assignors that the coordinator runs (KIP-848). Pure.

An assignor is a function from what is subscribed, and to whom what was assigned before, to the next target
assignment. `ASSIGNORS` has them by the names that `group.consumer.assignors` and clients give.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.executor.coordinators.groups.machine.assignors.range import assign_range
from sparklog.executor.coordinators.groups.machine.assignors.specification import (
    Assignment,
    Assignor,
    GroupSpecification,
    MemberSpecification,
)
from sparklog.executor.coordinators.groups.machine.assignors.uniform import assign_uniform

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupSpecification", "MemberSpecification"]

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""Those that Kafka has built in; the first one configured is for members that name none."""
