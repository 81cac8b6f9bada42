"""Stalls of an event loop: the longest turn as a metric, and the stack of one that was too long in the log.

Everything on a loop waits while one callback runs. The loop's own selector (`TurnSelector`) knows exactly how
long the loop was away from it. A thread beside the loop (`LoopWatch`) looks ten times a second, and if a turn
has lasted for that long, it asks the loop's thread for its stack by a signal. So requests pay nothing, and no
code has to be instrumented. Beside an idle loop it looks twice a second, so that the calls of a turn of less
than 0.6 s may be unknown.

A thread reads its own frames and no other's. CPython makes frame objects while `f_back` is followed,
which may collect garbage and let another thread run: if the frames are that thread's, they are gone by then,
and the process dies (CPython 3.11). faulthandler's timer walks them without the interpreter's lock. A signal
handler of Python's runs on the main thread between two of its own bytecodes, so nothing moves below it; loops
of other threads are measured only. Go interrupts its own threads with SIGURG, for the same reasons: nothing
else sends it, and without a handler it does nothing.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sparklog.node.loop.turn_loop import TurnLoop, TurnSelector

logger = logging.getLogger(__name__)

BEAT_S: Final = 0.1
IDLE_BEAT_S: Final = 0.5
IDLE_LOOKS: Final = 50
"""The looks in a row at which an idle loop was waiting for events."""
WARN_ABOVE_S: Final = 0.25
LINE_INTERVAL_S: Final = 10.0
LAG_SECONDS: Final = 10
_LOGGED_FRAMES: Final = 8
_ASK: Final = signal.SIGURG

_Result = TypeVar("_Result")


class LookPace:
    """The pauses between looks at a loop: longer once it is idle, and short again when it is seen in a turn.

    >>> pace = LookPace()
    >>> [pace.pause_s(loop_waits=True) for _ in range(IDLE_LOOKS)][-2:], pace.pause_s(loop_waits=False)
    ([0.1, 0.5], 0.1)
    """

    def __init__(self) -> None:
        self._looks = 0

    def pause_s(self, *, loop_waits: bool) -> float:
        """Return the pause after a look in seconds."""
        self._looks = self._looks + 1 if loop_waits else 0
        return BEAT_S if self._looks < IDLE_LOOKS else IDLE_BEAT_S


class LoopWatch:
    """Watches one loop from a thread beside it. Start and stop it on the loop's thread."""

    def __init__(self, selector: TurnSelector, what: str) -> None:
        self._selector = selector
        self._what = what
        self._stopped = threading.Event()
        self._lags_ms: deque[int] = deque([0], maxlen=LAG_SECONDS)
        """The longest stall of each of the last seconds."""
        self._asked_s = 0.0
        """Start of the turn for which the loop's thread was last asked for its stack."""
        self._stacks: deque[tuple[float, str]] = deque(maxlen=round(1 / BEAT_S) + 1)
        """Stacks of the loop's thread, with the start of their turns."""
        self._longest_logged_s = 0.0
        self._line_due_s = 0.0
        self._is_asked = (
            threading.current_thread() is threading.main_thread() and signal.getsignal(_ASK) is signal.SIG_DFL
        )
        """Whether signal handlers run on the loop's thread, and no library uses this signal."""
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="sparklog loop watch", daemon=True)

    @property
    def max_lag_ms(self) -> int:
        """The longest stall in the last `LAG_SECONDS`."""
        return max(self._lags_ms)

    @property
    def waited_s(self) -> float:
        """Total time without work."""
        return self._selector.waited_s

    @classmethod
    def of_running_loop(cls) -> "LoopWatch | None":
        """Return the watch over the running loop, if `run_watched` runs it."""
        return _watches.get(asyncio.get_running_loop())

    def start(self) -> None:
        if self._is_asked:
            signal.signal(_ASK, self._tell)
            signal.siginterrupt(_ASK, False)  # calls into C libraries go on by themselves
        self._thread.start()

    def stop(self) -> None:
        """Stop, and report the last second."""
        self._stopped.set()
        self._thread.join()
        if self._is_asked:
            signal.signal(_ASK, signal.SIG_DFL)
        self._report()

    def _tell(self, number: int, frame: FrameType | None) -> None:
        """Note this thread's stack; called between any two bytecodes, so without locks and log lines."""
        # An error in here would be raised in the interrupted code.
        with contextlib.suppress(RecursionError, MemoryError):
            if not self._selector.waits and frame is not None:
                self._stacks.append((self._selector.turn_began_s, _calls(frame)))

    def _watch(self) -> None:
        report_due_s = time.perf_counter() + 1
        pace = LookPace()
        while not self._stopped.wait(pace.pause_s(loop_waits=self._selector.waits)):
            now_s = time.perf_counter()
            self._look(now_s)
            if now_s >= report_due_s:
                report_due_s = now_s + 1
                self._report()

    def _look(self, now_s: float) -> None:
        """Ask for the loop's stack, once a turn, if the turn has lasted for a beat."""
        began_s = self._selector.turn_began_s
        if self._selector.waits or began_s == self._asked_s or now_s - began_s < BEAT_S:
            return
        self._asked_s = began_s
        if self._is_asked:
            signal.pthread_kill(self._loop_thread, _ASK)

    def _report(self) -> None:
        """Note the longest turn since the last report, and log it if it is long and a line is due."""
        turn = self._selector.take_longest()
        lasted_s = turn.ended_s - turn.began_s
        self._lags_ms.append(round(1_000 * lasted_s))
        if lasted_s <= WARN_ABOVE_S:
            return
        if lasted_s > self._longest_logged_s or turn.ended_s >= self._line_due_s:
            self._longest_logged_s = max(self._longest_logged_s, lasted_s)
            self._line_due_s = turn.ended_s + LINE_INTERVAL_S
            calls = dict(list(self._stacks)).get(turn.began_s, "calls that are not known")
            logger.warning(
                "%s: the event loop stood still for %d ms in %s", self._what, self._lags_ms[-1], calls
            )


def _calls(frame: FrameType) -> str:
    """Return the innermost calls within the callback that a loop runs, and the line of the last."""
    where = f"{'/'.join(frame.f_code.co_filename.split('/')[-3:])}:{frame.f_lineno}"
    calls: deque[str] = deque()
    caller: FrameType | None = frame
    while caller is not None and len(calls) < _LOGGED_FRAMES and not _is_loop(caller):
        calls.appendleft(caller.f_code.co_qualname)
        caller = caller.f_back
    return f"{' > '.join(calls) or 'a function of C'} ({where})"


def _is_loop(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(("asyncio/events.py", "asyncio/base_events.py"))


_watches: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]] = WeakKeyDictionary()


def run_watched(main: Coroutine[Any, Any, _Result], what: str) -> _Result:
    """Run `main` as `asyncio.run` does, on a loop that is watched; `what` is named in the lines."""
    selector = TurnSelector()
    with asyncio.Runner(loop_factory=lambda: TurnLoop(selector)) as runner:
        watch = LoopWatch(selector, what)
        watch.start()
        _watches[runner.get_loop()] = watch
        try:
            return runner.run(main)
        finally:
            watch.stop()
