"""The rounds of a case: both sides in turn, until they are warm and enough rounds count, or until its bound.

A JVM's first rounds flatter the other side: Apache Kafka's brokers may double their rate over the first four.
So a side is warm from the first of three rounds in a row whose main figure lies within 5 %, and rounds count
from the one in which both sides are. The main figure is the first that is no ratio and no difference: these
stand still while both of their terms rise.

A case ends at its bound whatever it does. Its rounds until then are kept: those since both sides were warm,
or, if one never was, the last ones, and the remark says so.
"""

import contextlib
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from benchmarks.budgets import Budget
from benchmarks.case import Figure, Round

STILL_WITHIN: Final = 0.05
STILL_ROUNDS: Final = 3
FAILURE_CHARACTERS: Final = 160
"""Of an error's text in the row of its case; standard error has all of it."""

Sides = Mapping[str, Round]
"""A case that is prepared on each side, by the side's name."""


class BoundReached(KeyboardInterrupt):
    """The case has reached its bound.

    A kind of KeyboardInterrupt, since an event loop swallows every other exception of a signal's handler.
    """


def still_since(values: Sequence[float], resolution: float = 0.0) -> int | None:
    """Return the index of the first of three rounds in a row within 5 %, or within one step of reading.

    >>> still_since([91, 150, 198, 201, 205]), still_since([1, 2, 3]), still_since([2, 3, 2], resolution=1)
    (2, None, 0)
    """
    for first in range(len(values) - STILL_ROUNDS + 1):
        some = values[first : first + STILL_ROUNDS]
        spread = max(some) - min(some)
        if spread <= max(resolution, STILL_WITHIN * max(map(abs, some))):
            return first
    return None


@dataclass(slots=True)
class Rounds:
    """The rounds of a case so far, and which of them count."""

    budget: Budget
    done: list[Mapping[str, Sequence[Figure]]] = field(default_factory=list)
    """The figures of each side by its name, in each round that both sides ended."""
    was_cut: bool = False
    """Whether the bound ended them."""
    failure: str = ""
    """The error that ended them instead."""

    @property
    def warm_since(self) -> int | None:
        """The index of the first round in which every side is warm; None if there is none yet."""
        if not self.budget.warms:
            return 0
        since = [still_since(*self._main_figure(side)) for side in (self.done[0] if self.done else ())]
        known = [first for first in since if first is not None]
        return max(known) if known and len(known) == len(since) else None

    @property
    def counted(self) -> Sequence[Mapping[str, Sequence[Figure]]]:
        """The rounds that count, the first one of all only if there is no other."""
        if (since := self.warm_since) is None:
            since = max(len(self.done) - self.budget.counted, min(1, len(self.done) - 1), 0)
        return self.done[since : since + self.budget.counted]

    @property
    def are_enough(self) -> bool:
        """Whether no further round is needed."""
        return self.warm_since is not None and len(self.counted) == self.budget.counted

    @property
    def remark(self) -> str:
        """How many rounds count, and what keeps them from being what was wanted."""
        parts = [f"{len(self.counted)} of {len(self.done)}"] if self.done else []
        if self.done and self.warm_since is None:
            parts.append("not still")
        if self.was_cut and len(self.counted) < self.budget.counted:
            parts.append(f"cut after {self.budget.bound_s:g} s")
        if self.failure:
            parts.append(f"failed: {self.failure}")
        return ", ".join(parts)

    def _main_figure(self, side: str) -> tuple[list[float], float]:
        main = [next(figure for figure in of[side] if figure.tells_warmth) for of in self.done]
        return [figure.value for figure in main], main[0].resolution


def run_rounds(opened: Callable[[], AbstractContextManager[Sides]], budget: Budget) -> Rounds:
    """Prepare a case and run its rounds, each side first in turn.

    Nothing that a case raises ends more than the case, a KeyboardInterrupt excepted. No round begins if
    one of the usual length would exceed the bound.
    """
    rounds = Rounds(budget)
    took_s: list[float] = []
    began_s = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            try:
                with _bound(budget.bound_s):
                    sides = stack.enter_context(opened())
                    while not rounds.are_enough:
                        round_began_s = time.monotonic()
                        usual_s = statistics.median(took_s or (0.0,))
                        if round_began_s + usual_s > began_s + budget.bound_s:
                            rounds.was_cut = True
                            break
                        names = list(sides)[:: -1 if len(rounds.done) % 2 else 1]
                        rounds.done.append({name: sides[name]() for name in names})
                        took_s.append(time.monotonic() - round_began_s)
            except BoundReached:
                rounds.was_cut = True
    except Exception as error:
        traceback.print_exc()
        said = " ".join(str(error).split())
        rounds.failure = f"{type(error).__name__}: {said[:FAILURE_CHARACTERS]}"
    return rounds


@contextlib.contextmanager
def _bound(seconds: float) -> Iterator[None]:
    def reached(number: int, frame: FrameType | None) -> None:
        raise BoundReached

    before = signal.signal(signal.SIGALRM, reached)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
