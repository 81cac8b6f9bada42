"""The schedule of log maintenance.

Pure. A piece of work is one job on one directory. Rules kept:

- A piece begins when it is due: no piece waits for another one.
- A piece is due an interval after it was last due, however late it began: pieces that are due together stay
  together, and one turn of the loop begins them all. It never runs twice at a time: intervals that pass while
  it waits or runs count once. A failure makes no difference.

Order for the caller: `add` each piece; then, periodically, begin all pieces that `begin_due` returns, and
call `ended` for each.
"""

from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

_Piece = TypeVar("_Piece", bound=Hashable)


class UpkeepSchedule(Generic[_Piece]):
    """The pieces of work by their due times.

    >>> schedule = UpkeepSchedule()
    >>> schedule.add("flush", interval_ms=1000, first_due_ms=0)
    >>> schedule.begin_due(0), schedule.begin_due(1000)
    (['flush'], [])
    >>> schedule.ended("flush")
    >>> schedule.begin_due(3210), schedule.ended("flush"), schedule.begin_due(3999), schedule.begin_due(4000)
    (['flush'], None, [], ['flush'])
    """

    def __init__(self) -> None:
        self._intervals_ms: dict[_Piece, int] = {}
        self._due_ms: dict[_Piece, int] = {}
        """Next start of each piece that does not run."""
        self._begun_ms: dict[_Piece, int] = {}
        """The time at which each piece that runs was due last before it began."""

    def add(self, piece: _Piece, *, interval_ms: int, first_due_ms: int) -> None:
        self._intervals_ms[piece] = interval_ms
        self._due_ms[piece] = first_due_ms

    def change_interval(self, piece: _Piece, interval_ms: int) -> None:
        """Change the interval of a piece, counted from when it was last due."""
        before = self._intervals_ms.get(piece)
        if before is not None:
            self._intervals_ms[piece] = interval_ms
            if piece in self._due_ms:
                self._due_ms[piece] += interval_ms - before

    @property
    def next_due_ms(self) -> float:
        """The next start of a piece that does not run; infinity without one."""
        return min(self._due_ms.values(), default=inf)

    def begin_due(self, now_ms: int) -> list[_Piece]:
        """Return the pieces to begin now, in the order of `add`."""
        due = [
            piece for piece in self._intervals_ms if piece in self._due_ms and self._due_ms[piece] <= now_ms
        ]
        for piece in due:
            due_ms = self._due_ms.pop(piece)
            self._begun_ms[piece] = now_ms - (now_ms - due_ms) % max(1, self._intervals_ms[piece])
        return due

    def ended(self, piece: _Piece) -> None:
        self._due_ms[piece] = self._begun_ms.pop(piece) + self._intervals_ms[piece]
