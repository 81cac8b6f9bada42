"""Shares a loop's time among the connections of a listener, and drives the coroutines of their requests.

A request that can't be answered at once is a coroutine (`requests`). It yields its turn by `await turn()`
after each item, and waits for a future or a `Deferred` by awaiting it. A connection works at it for `SHARE_S`
at a time. Unfinished work goes on in later turns of the loop, in line with that of others, and nothing more
is read from its connection meanwhile. All connections of the listener together have `TURN_S` of one turn;
those that come later in it are put in line, too. Between two turns the loop has everything else: heartbeats,
timers, other listeners.

While a coroutine waits, the next requests of its connection are read, unless it waits by `held`, because they
have to come behind what it waits for. It goes on in a later turn; but after a `Deferred` that it has awaited
without `held` at once, in the call that completes it, as far as its next `turn()`.

At most `MAX_LONG_REQUESTS` are at work at a time; the next one begins when one of them is answered, so that
what long requests take of memory is bounded, however many connections send them. One that waits is not at
work: it may wait for a long request's answer itself, of this very listener.

Order for the caller: `is_over` before it begins; then `wait` and nothing else, or work and `spent`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter
from types import coroutine
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from sparklog.node.loop.turn_loop import at_turn_end
from sparklog.protocol.codec.steps import Steps, steps_of

Result = TypeVar("Result")

SHARE_S: Final = 0.002
"""Time for one connection's requests before others go first; a step is always finished."""
TURN_S: Final = 0.010
"""Time of one turn of the loop for the requests of all connections together."""
MAX_LONG_REQUESTS: Final = 2


class Held(NamedTuple):
    """An awaitable that a coroutine waits for with its connection held."""

    awaited: Any


@coroutine
def held(awaitable: Awaitable[Result]) -> Steps[Result]:
    """Await something with the connection held: nothing more is read from it until that is done."""
    steps, answer = steps_of(awaitable), None
    try:
        while True:
            awaited = steps.send(answer)
            answer = yield awaited if awaited is None or type(awaited) is Held else Held(awaited)
    except StopIteration as last:
        result: Result = last.value
        return result
    finally:
        steps.close()


async def in_task(awaitable: Coroutine[Any, Any, Result]) -> Result:
    """Await a coroutine that needs a task: it has time-outs, or goes on awaiting when it is cancelled."""
    task = asyncio.get_running_loop().create_task(awaitable)
    try:
        return await task
    finally:
        task.cancel()


async def over_turns(awaitable: "Awaitable[Result] | Steps[Result]") -> Result:
    """Run a coroutine that waits for nothing in a task, `SHARE_S` of it in a turn of the loop."""
    steps = steps_of(awaitable)
    until_s = perf_counter() + SHARE_S
    while True:
        try:
            steps.send(None)
        except StopIteration as last:
            result: Result = last.value
            return result
        if perf_counter() >= until_s:
            await asyncio.sleep(0)
            until_s = perf_counter() + SHARE_S


class FairQueue:
    """Sharing of one loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[Callable[[], None]] = deque()
        self._call_first_at_turn_end = at_turn_end(loop, first=True)
        self._used_s = 0.0
        self._next_turn_scheduled = False
        self._long_requests = 0
        self._next_long_requests: deque[Callable[[], None]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether no more work may begin in this turn of the loop."""
        return self._used_s >= TURN_S

    def spent(self, worked_s: float) -> None:
        """Note a connection's time of work. Short times need not be noted."""
        if not self._used_s:
            self._call_first_at_turn_end(self._turn_over)
        self._used_s += worked_s

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn of the loop, after all callbacks that wait already."""
        self._line.append(go_on)
        self._schedule()

    def begin_long(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, with less than `MAX_LONG_REQUESTS` at work; then `end_long` once."""
        if self._long_requests < MAX_LONG_REQUESTS:
            self._long_requests += 1
            self.wait(go_on)
        else:
            self._next_long_requests.append(go_on)

    def end_long(self) -> None:
        if self._next_long_requests:
            self.wait(self._next_long_requests.popleft())
        else:
            self._long_requests -= 1

    def _turn_over(self) -> None:
        self._used_s = 0.0

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
        finally:  # after any exception of one the others have their turn
            if self._line:
                self._schedule()


def is_awaitable(result: Any) -> bool:
    """Return whether a handler's result is not its response yet."""
    return not hasattr(result, "__version__") and hasattr(type(result), "__await__")


def give_up(awaitable: Any) -> None:
    """Abandon the awaitable of a response that has lost its receiver."""
    if isinstance(awaitable, Coroutine):  # also of a compiled module, which has another type of them
        awaitable.close()
    elif asyncio.isfuture(awaitable):
        awaitable.cancel()
    else:
        awaitable.abandon()


async def response_of(result: Any) -> Any:
    while is_awaitable(result):
        result = await result
    return result


class Driven(Protocol):
    """The request of a coroutine."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def hold(self) -> None:
        """Stop reading from its connection."""

    def let_go(self) -> None:
        """Read the next requests while this one waits."""

    def finished(self, result: Any) -> Awaitable[Any] | None:
        """Take the coroutine's result; return the next awaitable, None at the end."""

    def failed(self, error: BaseException) -> None:
        """Take the coroutine's exception."""


class CoroutineDriver:
    """Drives a request's coroutine to its end, a share of it a turn.

    Order for the caller: `go_on` or `begin_later`, once; `abandon` when the answer has no receiver any more.
    """

    __slots__ = (
        "_abandoned",
        "_admitted",
        "_answer",
        "_driven",
        "_fair_queue",
        "_running",
        "_steps",
        "is_long",
    )

    def __init__(self, fair_queue: FairQueue, awaitable: Awaitable[Any], driven: Driven) -> None:
        self._fair_queue = fair_queue
        self._steps = steps_of(awaitable)
        self._driven = driven
        self._admitted = False
        self._abandoned = False
        self._running = False
        self._answer: Any = None
        """The response of a `Deferred` that was awaited, until the next turn."""
        self.is_long = False

    def go_on(self, until_s: float, answer: Any = None) -> None:
        """Work until `until_s` of the performance counter, up to the next `turn()`, or until it has to wait.

        `answer` is that of the awaited `Deferred`.
        """
        self._running = True
        awaited: Any = None
        try:
            while not self._abandoned:
                try:
                    awaited = self._steps.send(answer)
                except StopIteration as last:
                    following = self._driven.finished(last.value)
                    if following is None:
                        self._make_room()
                        return
                    self._steps, answer = steps_of(following), None
                    continue
                answer = None
                if awaited is not None:
                    break
                self.is_long = True
                if perf_counter() >= until_s:
                    break
        except (Exception, asyncio.CancelledError) as error:  # of the handler
            self._end()
            self._driven.failed(error)
            return
        self._running = False
        if self._abandoned:
            self._end()
            return
        self._driven.pause()
        if awaited is not None:
            self._wait_for(awaited)
        elif self._admitted:
            self._fair_queue.wait(self._take_turn)
        else:
            self._driven.hold()
            self._fair_queue.begin_long(self._begin)

    def begin_later(self) -> None:
        """Begin when one more long request may be at work."""
        self.is_long = True
        self._driven.pause()
        self._driven.hold()
        self._fair_queue.begin_long(self._begin)

    def abandon(self) -> None:
        self._abandoned = True
        if not self._running:
            self._end()

    def _wait_for(self, awaited: Any) -> None:
        is_held = type(awaited) is Held
        if is_held:
            awaited = awaited.awaited
            self._driven.hold()
        self._make_room()
        if not is_held:
            self.is_long = False  # after the wait it is short until it yields again
            self._driven.let_go()
        bind = getattr(awaited, "bind", None)  # as quick as may be: fetches and acknowledgements wait here
        if bind is not None:
            bind(self._go_on_later if is_held else self._completed)
        else:
            awaited._asyncio_future_blocking = False  # as a task does, whose part this has
            awaited.add_done_callback(self._done)

    def _done(self, _: "asyncio.Future[Any]") -> None:
        self._fair_queue.wait(self._take_turn)

    def _go_on_later(self, answer: Any) -> None:
        self._answer = answer
        self._fair_queue.wait(self._take_turn)

    def _completed(self, answer: Any) -> None:
        self._driven.resume()
        self.go_on(0.0, answer)

    def _begin(self) -> None:
        if self._abandoned:
            self._fair_queue.end_long()
        else:
            self._admitted = True
            self._take_turn()

    def _take_turn(self) -> None:
        if not self._abandoned:
            self._driven.resume()
            began_s = perf_counter()
            answer, self._answer = self._answer, None
            self.go_on(began_s + SHARE_S, answer)
            self._fair_queue.spent(perf_counter() - began_s)

    def _end(self) -> None:
        self._steps.close()
        self._make_room()

    def _make_room(self) -> None:
        if self._admitted:
            self._admitted = False
            self._fair_queue.end_long()
