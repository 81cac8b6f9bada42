"""The size of a cluster in racks and brokers of a rack, and the brokers that are beyond a smaller one.
Pure.

The racks of an application have the names of `sparklog.rack.names`; the others are called by their
numbers, `rack-2` and so on. A smaller size keeps the first racks, and the brokers with the lowest ids of
each. Brokers of racks with other names always stay.

A client that does not know the names (`rack_names` is None) takes racks with names of their own in the
order of their brokers' ids.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from sparklog.protocol.types import BrokerId

_RACK: Final = re.compile(r"rack-(0|[1-9][0-9]{0,5})")


class ClusterSize(NamedTuple):
    racks: int
    brokers_per_rack: int

    @property
    def brokers(self) -> int:
        return self.racks * self.brokers_per_rack

    def changed(self, racks: int | None, brokers_per_rack: int | None) -> Self:
        """Return the size with other numbers; None leaves one as it is.

        >>> ClusterSize(3, 1).changed(5, None)
        ClusterSize(racks=5, brokers_per_rack=1)
        """
        return type(self)(
            self.racks if racks is None else racks,
            self.brokers_per_rack if brokers_per_rack is None else brokers_per_rack,
        )

    def __str__(self) -> str:
        racks = "1 rack" if self.racks == 1 else f"{self.racks} racks"
        each = "1 broker" if self.brokers_per_rack == 1 else f"{self.brokers_per_rack} brokers each"
        return f"{racks} of {each}"

    @classmethod
    def of(cls, racks: Mapping[BrokerId, str | None], rack_names: Sequence[str] | None = None) -> Self:
        """Return the smallest size to which all brokers belong.

        >>> ClusterSize.of({0: "rack-0", 1: "rack-1", 1001: "rack-1"})
        ClusterSize(racks=2, brokers_per_rack=2)
        """
        by_rack = brokers_by_rack(racks, rack_names)
        return cls(max(by_rack, default=0) + 1, max(map(len, by_rack.values()), default=1))


class SizeChange(NamedTuple):
    """The numbers of a size that change; None leaves one as it is."""

    racks: int | None = None
    brokers_per_rack: int | None = None

    def is_in(self, size: ClusterSize) -> bool:
        """Whether a size has these numbers.

        >>> SizeChange(racks=5).is_in(ClusterSize(5, 2)), SizeChange(5, 1).is_in(ClusterSize(5, 2))
        (True, False)
        """
        return size.changed(*self) == size


def rack_name(rack: int, rack_names: Sequence[str] = ()) -> str:
    """Return the name of a rack, counted from 0."""
    return rack_names[rack] if rack < len(rack_names) else f"rack-{rack}"


def rack_number(rack: str, rack_names: Sequence[str] = ()) -> int | None:
    """Return the number of a rack by its name; None if an application has none of that name."""
    if rack in rack_names:
        return rack_names.index(rack)
    found = _RACK.fullmatch(rack)
    return int(found[1]) if found and int(found[1]) >= len(rack_names) else None


def beyond(
    racks: Mapping[BrokerId, str | None],
    max_racks: int | None,
    max_brokers_per_rack: int | None,
    rack_names: Sequence[str] | None = None,
) -> frozenset[BrokerId]:
    """Return the brokers that do not belong to a cluster of that size; None is no limit.

    >>> sorted(beyond({0: "rack-0", 1: "rack-1", 1000: "rack-0", 1001: "rack-1"}, 1, None))
    [1, 1001]
    >>> sorted(beyond({0: "rack-0", 1: "rack-1", 1000: "rack-0", 1001: "rack-1"}, None, 1))
    [1000, 1001]
    >>> sorted(beyond({0: "rack-1", 1: "rack-2", 2: "rack-3"}, 2, None, ["rack-1", "rack-2", "rack-3"]))
    [2]
    """
    leaving: set[BrokerId] = set()
    for rack, broker_ids in brokers_by_rack(racks, rack_names).items():
        if max_racks is not None and rack >= max_racks:
            leaving.update(broker_ids)
        elif max_brokers_per_rack is not None:
            leaving.update(broker_ids[max_brokers_per_rack:])
    return frozenset(leaving)


def brokers_by_rack(
    racks: Mapping[BrokerId, str | None], rack_names: Sequence[str] | None
) -> dict[int, list[BrokerId]]:
    """Return the brokers of each of the application's racks by its number, lowest ids first."""
    named: dict[str, list[BrokerId]] = {}
    for broker_id in sorted(racks):
        rack = racks[broker_id]
        if rack is not None:
            named.setdefault(rack, []).append(broker_id)
    by_rack: dict[int, list[BrokerId]] = {}
    for position, (rack, broker_ids) in enumerate(named.items()):
        number = rack_number(rack, rack_names or ())
        if number is None and rack_names is None:
            number = position
        if number is not None:
            by_rack.setdefault(number, []).extend(broker_ids)
    return by_rack
