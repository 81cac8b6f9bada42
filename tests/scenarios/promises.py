"""What clients were promised in a story, and whether it is kept."""

import itertools
from collections.abc import Iterator, Mapping

from sparklog.protocol.types import BrokerId
from tests.scenarios.replica import Log


class Promises:
    """The values that were acknowledged."""

    def __init__(self) -> None:
        self._by_all: list[str] = []
        """With acks=all; none of them may ever be lost."""
        self._by_leader: list[str] = []
        self._lost: set[str] = set()

    def given(self, value: str, *, all_acks: bool) -> None:
        """A client was told that its record was taken."""
        (self._by_all if all_acks else self._by_leader).append(value)

    def newly_broken(self, there: set[str]) -> Iterator[str]:
        """Yield a line about those that are not `there`, each of them once."""
        for values, broken in (
            (self._by_all, "LOST, though acknowledged"),
            (self._by_leader, "lost, acknowledged by a leader alone"),
        ):
            lost = [value for value in values if value not in there and value not in self._lost]
            self._lost.update(lost)
            if lost:
                yield f"{broken}: {' '.join(lost)}"


def divergences(logs: Mapping[BrokerId, Log]) -> Iterator[str]:
    """Yield a line about each offset at which two logs differ, below the smaller of their high watermarks."""
    for (one_id, one), (other_id, other) in itertools.combinations(logs.items(), 2):
        for offset in range(min(one.high_watermark, other.high_watermark)):
            if one.records[offset] != other.records[offset]:
                yield (
                    f"DIVERGED at offset {offset}: broker {one_id} has {one.records[offset]}, "
                    f"broker {other_id} has {other.records[offset]}"
                )
