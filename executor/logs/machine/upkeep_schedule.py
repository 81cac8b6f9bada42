"""When what is due of the logs' upkeep.

Pure. A piece of work is one job on one directory. Rules kept:

- What is due is begun, whatever else is under way: no piece waits for another one.
- A piece is due so long after it was last begun, without jitter, and never twice at a time: intervals that
  pass while it runs count once, when it has ended. Whether it failed makes no difference.

Order for the caller: `add` each piece, then, every now and then, begin all that `begin_due` returns, and say
`ended` of each.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

_Piece = TypeVar("_Piece", bound=Hashable)


class UpkeepSchedule(Generic[_Piece]):
    """The pieces of work, by when they are due.

    >>> schedule = UpkeepSchedule()
    >>> schedule.add("flush", interval_ms=1000, first_due_ms=0)
    >>> schedule.begin_due(0), schedule.begin_due(1000)
    (['flush'], [])
    >>> schedule.ended("flush")
    >>> schedule.begin_due(1001), schedule.begin_due(2000)
    (['flush'], [])
    """

    def __init__(self) -> None:
        self._intervals_ms: dict[_Piece, int] = {}
        self._due_ms: dict[_Piece, int] = {}
        """Of those that do not run."""
        self._begun_ms: dict[_Piece, int] = {}
        """Of those that run."""

    def add(self, piece: _Piece, *, interval_ms: int, first_due_ms: int) -> None:
        """Have a piece done every `interval_ms`."""
        self._intervals_ms[piece] = interval_ms
        self._due_ms[piece] = first_due_ms

    def change_interval(self, piece: _Piece, interval_ms: int) -> None:
        """Have a piece done every `interval_ms` instead, counted from when it was begun last."""
        before = self._intervals_ms.get(piece)
        if before is not None:
            self._intervals_ms[piece] = interval_ms
            if piece in self._due_ms:
                self._due_ms[piece] += interval_ms - before

    def begin_due(self, now_ms: int) -> list[_Piece]:
        """Return what is to be begun now, in the order in which it was added."""
        due = [
            piece for piece in self._intervals_ms if piece in self._due_ms and self._due_ms[piece] <= now_ms
        ]
        for piece in due:
            del self._due_ms[piece]
            self._begun_ms[piece] = now_ms
        return due

    def ended(self, piece: _Piece) -> None:
        """A piece that was begun has ended, well or not."""
        self._due_ms[piece] = self._begun_ms.pop(piece) + self._intervals_ms[piece]
