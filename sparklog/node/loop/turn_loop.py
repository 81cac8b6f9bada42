"""An event loop with callbacks at the end of a turn: after all callbacks of the turn, before it waits again.

asyncio's `call_soon` means the next turn, and so one more system call and one more round through the loop
before an answer leaves. Work that is collected during a turn (requests to look at again, connections to
write to) is done at its end instead, and the loop looks at its sockets once.

Rule: callbacks run in the order in which they were given. One that is given by another one runs in the same
turn, unless the end of the turn has lasted `TURN_END_S`: then the loop looks at its sockets first. The loop
does not wait while a callback is left, or after one has scheduled something.
"""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVarTuple

_Arguments = TypeVarTuple("_Arguments")

TURN_END_S: Final = 0.005
"""Time after which sockets and timers go first."""


class Turn(NamedTuple):
    began_s: float
    ended_s: float


class TurnSelector(selectors.DefaultSelector):
    """A loop's selector that knows how long each turn of the loop takes, and how late it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.turn_began_s = time.perf_counter()
        self.waits = False
        """Whether the loop waits for events, and so cannot stall."""
        self.waited_s = 0.0
        """Total time of waiting."""
        self.at_turn_end: deque[Callable[[], object]] = deque()
        """The callbacks left for the end of this turn,"""
        self.end_turn: Callable[[], bool] = lambda: True
        """and what runs them; False: the loop must not wait."""
        self._longest_s = 0.0
        self._longest = Turn(0.0, 0.0)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.at_turn_end:
            began_s = time.perf_counter()
            if not self.end_turn():
                timeout = 0.0
            elif timeout is not None:  # until the next timer, as it was before the callbacks
                timeout = max(0.0, timeout - (time.perf_counter() - began_s))
        called_s = time.perf_counter()
        if called_s - self.turn_began_s > self._longest_s:
            self._note(self.turn_began_s, called_s)
        self.waits = True
        events = super().select(timeout)
        self.turn_began_s = woken_s = time.perf_counter()
        self.waits = False
        self.waited_s += woken_s - called_s
        if timeout is not None and woken_s - called_s - max(timeout, 0) > self._longest_s:
            self._note(called_s + max(timeout, 0), woken_s)
        return events

    def take_longest(self) -> Turn:
        """Return the longest turn since the last call, and begin the next measurement."""
        longest, self._longest, self._longest_s = self._longest, Turn(0.0, 0.0), 0.0
        return longest

    def _note(self, began_s: float, ended_s: float) -> None:
        self._longest_s = ended_s - began_s
        self._longest = Turn(began_s, ended_s)


class TurnLoop(asyncio.SelectorEventLoop):
    def __init__(self, selector: TurnSelector) -> None:
        super().__init__(selector)
        selector.end_turn = self._end_turn
        self._turns = selector
        self._at_turn_end = selector.at_turn_end
        self._has_scheduled = False
        """Whether a callback or a timer was scheduled since the end of the turn began."""

    @property
    def turn_began_s(self) -> float | None:
        """The begin of the turn under way; None while the loop waits for events. For any thread."""
        turns = self._turns
        began_s = turns.turn_began_s
        return None if turns.waits else began_s

    def call_at_turn_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, after this turn's callbacks and before the loop waits."""
        self._at_turn_end.append(callback)

    def call_first_at_turn_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` at the end of this turn, before all others, however long those last."""
        self._at_turn_end.appendleft(callback)

    def call_soon(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        self._has_scheduled = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._has_scheduled = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        self._has_scheduled = True
        super().stop()

    def _end_turn(self) -> bool:
        """Run the callbacks; return whether the loop may wait for as long as it meant to."""
        self._has_scheduled = False
        callbacks = self._at_turn_end
        until_s = time.perf_counter() + TURN_END_S
        while callbacks:
            try:
                callbacks.popleft()()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                message = "a callback at the end of a turn of the event loop failed"
                self.call_exception_handler({"message": message, "exception": error})
            if time.perf_counter() >= until_s:
                break
        return not callbacks and not self._has_scheduled


def at_turn_end(loop: Any, *, first: bool = False) -> Callable[[Callable[[], object]], object]:
    """Return the function that has a callback called at the end of a turn of `loop`, maybe before all others.

    On any other loop than a `TurnLoop` that is in the next turn.
    """
    call: Callable[[Callable[[], object]], object]
    if not isinstance(loop, TurnLoop):
        call = loop.call_soon
    else:
        call = loop.call_first_at_turn_end if first else loop.call_at_turn_end
    return call
