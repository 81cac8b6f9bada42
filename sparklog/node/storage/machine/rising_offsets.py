"""The first offsets of transactions, of which the smallest bounds read_committed readers. Pure."""

from collections import deque
from typing import Final

from sparklog.protocol.types import Offset

_TOLERATED: Final = 64
"""Removed offsets that may remain in the queue, in addition to as many as there are members."""


class RisingOffsets:
    """A set of offsets that are added in rising order and removed in any, whose smallest is always known.

    Every fetch asks for the smallest of perhaps ten thousand: each call costs amortized constant time.
    """

    __slots__ = ("_members", "_order")

    def __init__(self) -> None:
        self._members: set[Offset] = set()
        self._order: deque[Offset] = deque()
        """All members, rising, and some removed ones."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def first(self) -> Offset | None:
        """The smallest offset; None if there is none."""
        order, members = self._order, self._members
        while order:
            if order[0] in members:
                return order[0]
            order.popleft()
        return None

    def add(self, offset: Offset) -> None:
        """Add an offset above all earlier ones."""
        self._members.add(offset)
        self._order.append(offset)

    def discard(self, offset: Offset) -> None:
        """Remove an offset; a missing one is ignored."""
        self._members.discard(offset)
        if len(self._order) > 2 * len(self._members) + _TOLERATED:
            self._order = deque(each for each in self._order if each in self._members)

    def discard_from(self, offset: Offset) -> None:
        """Remove all offsets from `offset` on: these may be added again."""
        self._members = {each for each in self._members if each < offset}
        self._order = deque(each for each in self._order if each in self._members)

    def clear(self) -> None:
        self._members.clear()
        self._order.clear()
