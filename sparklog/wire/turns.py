"""Shares a loop's time among the connections of a listener: who asks for much lets the others go first.

A handler with much to do returns a generator (`requests.Steps`), which yields after each item and returns the
answer. A connection runs it for `SHARE_S` at a time. What is not done by then goes on in later turns of the
loop, in line with the others that are not done, and nothing more is read from its connection meanwhile. All
connections of the listener together have `TURN_S` of one turn; those that come later in it are put in line,
too. Between two turns the loop has everything else: heartbeats, timers, other listeners. A generator that
yields a future, of what a thread does, is gone on with in a turn after that is done.

At most `MAX_LONG_REQUESTS` are at work at a time; the next one begins when one of them is answered, so that
what long requests take of memory is bounded, however many connections send them. One that waits for a future
is not at work: what it waits for may be a long request's answer itself, of this very listener.

Order for the caller: `is_over` before it begins; then `wait` and nothing else, or work and `spent`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

SHARE_S: Final = 0.002
"""How long one connection's requests may be worked at before others go first; a step is always finished."""
TURN_S: Final = 0.010
"""How much of one turn of the loop goes to the requests of all connections together."""
MAX_LONG_REQUESTS: Final = 2


def in_one_go(steps: Generator[None, None, Result]) -> Result:
    """Take all steps at once; return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as last:
            result: Result = last.value
            return result


async def over_turns(steps: Generator[None, None, Result]) -> Result:
    """Take the steps, `SHARE_S` of them in a turn of the loop; return what they return."""
    until_s = perf_counter() + SHARE_S
    while True:
        try:
            next(steps)
        except StopIteration as last:
            result: Result = last.value
            return result
        if perf_counter() >= until_s:
            await asyncio.sleep(0)
            until_s = perf_counter() + SHARE_S


class Turns:
    """Whose turn it is on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[Callable[[], None]] = deque()
        self._used_s = 0.0
        self._next_turn_scheduled = False
        self._long_requests = 0
        self._next_long_requests: deque[Callable[[], None]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether nobody may begin with more work in this turn of the loop."""
        return self._used_s >= TURN_S

    def spent(self, worked_s: float) -> None:
        """Note that a connection has worked for `worked_s`. What is short need not be noted."""
        self._used_s += worked_s
        self._schedule()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called in a later turn of the loop, after all that wait already."""
        self._line.append(go_on)
        self._schedule()

    def begin_long(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called in a later turn, when there is room for one more; then `end_long` once."""
        if self._long_requests < MAX_LONG_REQUESTS:
            self._long_requests += 1
            self.wait(go_on)
        else:
            self._next_long_requests.append(go_on)

    def end_long(self) -> None:
        """Make room for the next."""
        if self._next_long_requests:
            self.wait(self._next_long_requests.popleft())
        else:
            self._long_requests -= 1

    def _schedule(self) -> None:
        if not self._next_turn_scheduled:
            self._next_turn_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._next_turn_scheduled = False
        self._used_s = 0.0
        try:
            for _ in range(len(self._line)):
                if self.is_over:
                    break
                self._line.popleft()()
        finally:  # whatever one of them raises, the others' turn comes
            if self._line:
                self._schedule()


class LongWork:
    """A generator's steps on the way to what it returns, a share a turn.

    Order for the caller: `go_on` or `begin_later`, once; `abandon` when nobody waits for the result any more.
    """

    __slots__ = (
        "_abandoned",
        "_admitted",
        "_failed",
        "_finished",
        "_running",
        "_steps",
        "_turns",
        "resumed_s",
        "worked_s",
    )

    def __init__(
        self,
        turns: Turns,
        steps: Generator["asyncio.Future[Any] | None", None, Any],
        finished: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`finished` gets what the generator returns, or `failed` what it raises; none if it is abandoned."""
        self._turns = turns
        self._steps = steps
        self._finished = finished
        self._failed = failed
        self._admitted = False
        self._abandoned = False
        self._running = False
        self.resumed_s = 0.0
        """When the turn began, by the performance counter, in which the last steps were taken,"""
        self.worked_s = 0.0
        """and how long it was worked at in those before it."""

    def go_on(self, until_s: float) -> bool:
        """Take steps until `until_s` of the performance counter, but one; return whether that was all."""
        self._running = True
        awaited = None
        try:
            while not self._abandoned:
                awaited = next(self._steps)
                if awaited is not None or perf_counter() >= until_s:
                    break
        except StopIteration as last:
            self._end()
            self._finished(last.value)
            return True
        except Exception as error:  # of whoever made the generator, as when a handler raises
            self._end()
            self._failed(error)
            return True
        self._running = False
        if self._abandoned:
            self._end()
            return True
        if awaited is not None:
            self._make_room()
            awaited.add_done_callback(lambda _: self._turns.wait(self._take_turn))
        elif self._admitted:
            self._turns.wait(self._take_turn)
        else:
            self.begin_later()
        return False

    def begin_later(self) -> None:
        """Take the first steps, or the next, when it is the turn of one more long request."""
        self._turns.begin_long(self._begin)

    def abandon(self) -> None:
        """Do no more."""
        self._abandoned = True
        if not self._running:
            self._end()

    def _begin(self) -> None:
        if self._abandoned:
            self._turns.end_long()
        else:
            self._admitted = True
            self._take_turn()

    def _take_turn(self) -> None:
        if not self._abandoned:
            self.resumed_s = began_s = perf_counter()
            self.go_on(began_s + SHARE_S)
            worked_s = perf_counter() - began_s
            self.worked_s += worked_s
            self._turns.spent(worked_s)

    def _end(self) -> None:
        self._steps.close()
        self._make_room()

    def _make_room(self) -> None:
        if self._admitted:
            self._admitted = False
            self._turns.end_long()
