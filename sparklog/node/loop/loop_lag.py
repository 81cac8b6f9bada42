"""Stalls of an event loop: their length as a metric, and the stalled code as a line in the log.

Everything on a loop waits while one callback runs. The loop's own selector (`TurnSelector`) knows exactly how
long the loop was away from it. A thread beside the loop (`LoopWatch`) looks ten times a second, and if a turn
has lasted for that long, it asks the loop's thread for its stack by a signal. So requests pay nothing, and no
code has to be instrumented. `stalls` decides which stalls are logged.

A thread reads its own frames and no other's. CPython makes frame objects while `f_back` is followed,
which may collect garbage and let another thread run: if the frames are that thread's, they are gone by then,
and the process dies (CPython 3.11). faulthandler's timer walks them without the interpreter's lock. A signal
handler of Python's runs on the main thread between two of its own bytecodes, so nothing moves below it; loops
of other threads are measured only. Go interrupts its own threads with SIGURG, for the same reasons: nothing
else sends it, and without a handler it does nothing.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from sparklog.node.loop.machine.stalls import Stall, StallLog
from sparklog.node.loop.turn_loop import Turn, TurnLoop, TurnSelector

logger = logging.getLogger(__name__)

BEAT_S: Final = 0.1
_BEATS_KEPT: Final = 600
_LOGGED_FRAMES: Final = 8
_ASK: Final = signal.SIGURG
LAG_SECONDS: Final = 10
_SCHEDULING_BYTES: Final = 128

_Result = TypeVar("_Result")


class _Beat(NamedTuple):
    at_s: float
    loop_cpu_s: float
    unscheduled_s: float


class LoopWatch:
    """Watches one loop from a thread beside it. Start and stop it on the loop's thread."""

    def __init__(self, selector: TurnSelector, say: Callable[[int, str], None]) -> None:
        self._selector = selector
        self._say = say
        self._log = StallLog()
        self._stopped = threading.Event()
        self._beats: deque[_Beat] = deque(maxlen=_BEATS_KEPT)
        self._lags_ms: deque[int] = deque([0], maxlen=LAG_SECONDS)
        """The longest stall of each of the last seconds."""
        self._asked_s = 0.0
        """Start of the turn for which the loop's thread was last asked for its stack."""
        self._stacks: dict[float, str] = {}
        """Stack of the loop's thread, by the start of the turn."""
        self._is_asked = (
            threading.current_thread() is threading.main_thread() and signal.getsignal(_ASK) is signal.SIG_DFL
        )
        """Whether signal handlers run on the loop's thread, and no library uses this signal."""
        self._loop_thread = threading.get_ident()
        self._loop_clock = time.pthread_getcpuclockid(self._loop_thread)
        self._scheduling = _open_scheduling(threading.get_native_id())
        """A descriptor, read ten times a second without opening the file each time."""
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
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """Stop, and report the last second."""
        self._stopped.set()
        self._thread.join()
        if self._is_asked:
            signal.signal(_ASK, signal.SIG_DFL)
        self._beat()
        self._report()
        if self._scheduling is not None:
            os.close(self._scheduling)
            self._scheduling = None

    def _tell(self, number: int, frame: FrameType | None) -> None:
        """Note this thread's stack; called between any two bytecodes, so without locks and log lines."""
        # An error in here would be raised in the interrupted code.
        with contextlib.suppress(RecursionError, MemoryError):
            if not self._selector.waits:
                self._stacks[self._selector.turn_began_s] = _doing(frame)

    def _watch(self) -> None:
        report_due_s = time.perf_counter() + 1
        while not self._stopped.wait(BEAT_S):
            self._beat()
            self._look()
            if self._beats[-1].at_s >= report_due_s:
                report_due_s = self._beats[-1].at_s + 1
                self._report()

    def _beat(self) -> None:
        self._beats.append(
            _Beat(time.perf_counter(), time.clock_gettime(self._loop_clock), self._unscheduled_s())
        )

    def _unscheduled_s(self) -> float:
        """Return the total time the loop's thread was ready to run; 0 if the kernel does not count it."""
        if self._scheduling is None:
            return 0.0
        try:
            return int(os.pread(self._scheduling, _SCHEDULING_BYTES, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def _look(self) -> None:
        """Ask for the loop's stack, once a turn, if the turn has lasted since the last beat."""
        began_s = self._selector.turn_began_s
        if self._selector.waits or began_s == self._asked_s or self._beats[-1].at_s - began_s < BEAT_S:
            return
        self._asked_s = began_s
        if self._is_asked:
            signal.pthread_kill(self._loop_thread, _ASK)

    def _report(self) -> None:
        turn = self._selector.take_longest()
        stall = self._stall(turn)
        self._lags_ms.append(stall.ms)
        for began_s in [began_s for began_s in list(self._stacks) if began_s <= turn.ended_s]:
            del self._stacks[began_s]
        if (level := self._log.take(stall, int(turn.ended_s * 1000))) is not None:
            self._say(level, f"the event loop stood still for {stall}")

    def _stall(self, turn: Turn) -> Stall:
        """Return the stall of a turn, by the beats around it."""
        beats = list(self._beats)
        first = next((beat for beat in reversed(beats) if beat.at_s <= turn.began_s), beats[0])
        last = next((beat for beat in beats if beat.at_s >= turn.ended_s), beats[-1])
        within = [turn.began_s, *(beat.at_s for beat in beats), turn.ended_s]
        within = [at_s for at_s in within if turn.began_s <= at_s <= turn.ended_s]
        gaps_s = [later - earlier for earlier, later in itertools.pairwise(within)]
        ms = _ms(turn.ended_s - turn.began_s)
        loop_cpu_ms = min(ms, _ms(last.loop_cpu_s - first.loop_cpu_s))
        return Stall(
            ms,
            loop_cpu_ms,
            min(ms - loop_cpu_ms, _ms(last.unscheduled_s - first.unscheduled_s)),
            _ms(max(gaps_s, default=0.0)),
            self._stacks.get(turn.began_s),
        )


def _open_scheduling(thread_id: int) -> int | None:
    """Open the kernel's statistics of a thread's scheduling; None where it keeps none."""
    try:
        return os.open(f"/proc/self/task/{thread_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _ms(seconds: float) -> int:
    return round(1_000 * seconds)


def _doing(frame: FrameType | None) -> str:
    """Return the calls within the callback that a loop runs, the outermost first, and the line."""
    calls: list[str] = []
    where: str | None = None
    while frame is not None and not _is_loop(frame):
        code = frame.f_code
        if where is None and "site-packages" not in code.co_filename:
            where = f"{'/'.join(code.co_filename.split('/')[-3:])}:{frame.f_lineno}"
        calls.append(code.co_qualname)
        frame = frame.f_back
    if frame is not None and not calls:
        # Not a Python function: it has no frame of its own.
        callback = getattr(frame.f_locals.get("self"), "_callback", None)
        return getattr(callback, "__qualname__", None) or repr(callback)
    calls.reverse()
    shown = calls if len(calls) <= _LOGGED_FRAMES else [*calls[: _LOGGED_FRAMES - 2], "...", *calls[-2:]]
    return f"{' > '.join(shown)} ({where})"


def _is_loop(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_qualname == "TurnLoop._end_turn":
        return True
    return code.co_qualname == "Handle._run" and code.co_filename.endswith("asyncio/events.py")


_watches: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]] = WeakKeyDictionary()


def run_watched(main: Coroutine[Any, Any, _Result], what: str) -> _Result:
    """Run `main` as `asyncio.run` does, on a loop that is watched; `what` is named in the lines."""
    selector = TurnSelector()
    with asyncio.Runner(loop_factory=lambda: TurnLoop(selector)) as runner:
        watch = LoopWatch(selector, lambda level, line: logger.log(level, "%s: %s", what, line))
        watch.start()
        _watches[runner.get_loop()] = watch
        try:
            return runner.run(main)
        finally:
            watch.stop()
