"""Offsets that come in rising order and go in any, of which the first is always known.

The first of ten thousand is asked for with every fetch, so nothing here looks at all of them: each call costs
amortized constant time.
"""

from collections import deque
from typing import Final

from sparklog.types import Offset

_TOLERATED: Final = 64
"""So many that are gone may lie among those that are there, and beyond that as many as there are."""


class RisingOffsets:
    """A set of offsets."""

    __slots__ = ("_members", "_order")

    def __init__(self) -> None:
        self._members: set[Offset] = set()
        self._order: deque[Offset] = deque()
        """All members, rising, and some that are members no more."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def first(self) -> Offset | None:
        """The smallest; None without any."""
        order, members = self._order, self._members
        while order:
            if order[0] in members:
                return order[0]
            order.popleft()
        return None

    def add(self, offset: Offset) -> None:
        """Take in an offset that is above all that were."""
        self._members.add(offset)
        self._order.append(offset)

    def discard(self, offset: Offset) -> None:
        """Let go of an offset; it need not be here."""
        self._members.discard(offset)
        if len(self._order) > 2 * len(self._members) + _TOLERATED:
            self._order = deque(each for each in self._order if each in self._members)

    def clear(self) -> None:
        """Let go of all."""
        self._members.clear()
        self._order.clear()
