"""Threads for calls of a catalogue, which block for as long as it likes.

They are daemons: a catalogue that does not answer holds up neither the loop nor the end of the process. A
call without progress for `SILENCE_S` is given up. Its thread cannot be stopped, so
- its late answer is dropped: a commit may have landed by then, as after any lost answer;
- `CatalogCall.proceed` raises in it, so that it begins nothing new, such as a table of a deleted topic;
- it may still use the connections of its catalogue: the caller opens the table again, with a new catalogue;
- `SilentCalls` bounds how many such threads there are.

A computation, such as the comparison of 100,000 files, has one thread at a time (`compute`): a second one
makes it no faster, and each keeps Python's lock from the loop for some milliseconds whenever that needs it.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

from sparklog.driver.controller.tables.machine.silent_calls import SilentCalls
from sparklog.driver.controller.tables.table_errors import CallGivenUpError, CatalogSilentError
from sparklog.node.clocks import monotonic_ms

T = TypeVar("T")
P = ParamSpec("P")

MOST_CALLS: Final = 4
"""At once, without those that were given up."""
SILENCE_S: Final = 120.0

logger = logging.getLogger(__name__)


class CatalogCall:
    """One call, for its own thread."""

    def __init__(self) -> None:
        self._is_given_up = False
        self._proceeded_s = time.monotonic()

    def proceed(self) -> None:
        """Note that the call makes progress.

        Raises:
            CallGivenUpError: nothing waits for it any more, and it must change nothing further.
        """
        if self._is_given_up:
            raise CallGivenUpError
        self._proceeded_s = time.monotonic()

    def give_up(self) -> None:
        self._is_given_up = True

    @property
    def silence_s(self) -> float:
        return time.monotonic() - self._proceeded_s


class CatalogThreads:
    """Belongs to a loop."""

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self._silence_s: Final = silence_s
        self._silent: Final = SilentCalls()
        self._room: Final = asyncio.Semaphore(MOST_CALLS)
        self._computing: Final = asyncio.Lock()
        self.given_up = 0
        """So many calls; a catalogue that was opened before the last one may still be in use by it."""

    async def call(self, caller: Hashable, function: Callable[[CatalogCall], T]) -> T:
        """Return the result of a call in a thread; a cancelled caller gives the call up.

        Raises:
            CatalogSilentError: there is no result; the call may still have an effect.
        """
        async with self._room:
            if not self._silent.may_begin(caller, monotonic_ms()):
                raise self._silence()
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[T] = loop.create_future()
            call = CatalogCall()
            threading.Thread(
                target=_run, args=(function, call, loop, answer), name="sparklog table", daemon=True
            ).start()
            try:
                while not answer.done():
                    left_s = self._silence_s - call.silence_s
                    if left_s <= 0:
                        raise self._silence()
                    await asyncio.wait([answer], timeout=left_s)
                self._silent.answered(caller)
                return answer.result()
            finally:
                if not answer.done():
                    self._give_up(caller, call, answer)

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that waits for nothing."""
        async with self._computing:
            return await asyncio.to_thread(function, *args, **kwargs)

    def _silence(self) -> CatalogSilentError:
        # One text for a call that was given up and for those that are not begun: one state, logged once.
        return CatalogSilentError(
            f"the catalogue does not answer: a call was given up after {self._silence_s:g} s"
        )

    def _give_up(self, caller: Hashable, call: CatalogCall, answer: asyncio.Future[T]) -> None:
        call.give_up()
        self.given_up += 1
        self._silent.given_up(caller)

        def ended(late: asyncio.Future[T]) -> None:
            self._silent.ended(caller)
            # An error's text can have a password.
            logger.debug("A call that was given up has ended: %s", type(late.exception()).__name__)

        answer.add_done_callback(ended)


def _run(
    function: Callable[[CatalogCall], T],
    call: CatalogCall,
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[T],
) -> None:
    def settle(result: T | None, error: Exception | None) -> None:
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    try:
        settled = (function(call), None)
    except BaseException as error:
        # Libraries in Rust panic with one that is no `Exception`, and without an answer the caller waits on.
        settled = (None, _for_a_future(error))  # type: ignore[assignment]
    with suppress(RuntimeError):  # The loop has ended, and nothing waits.
        loop.call_soon_threadsafe(settle, *settled)


def _for_a_future(error: BaseException) -> Exception:
    """Return an error that a future takes, and that its caller treats as one of the catalogue."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
