"""Assignors of the coordinator: partitions of a consumer group's members (KIP-848). Pure.

An assignor is a function from the subscriptions and the former target assignment to the next one. `ASSIGNORS`
has them by the names that `group.consumer.assignors` and clients give.
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
"""Kafka's built-in assignors; the first one configured is for members that name none."""
