"""Exclusive CPU of functions on one thread, by role and phase.

A wrapped function reads the thread's CPU clock when it begins and when it ends, and the time since the last
reading belongs to the phase on top. A call of a wrapper costs the phase itself and the phase around it about
a microsecond: how much each is measured at the start (`inner_ns`, `outer_ns`), in a loop whose code and data
stay in the caches. Between other work it is more, so the caller scales both by what rounds with wrappers take
longer than rounds without (`without_wrappers`).
"""

import gc
import importlib
import time
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, Final, NamedTuple

LOOP: Final = "loop"
PRODUCE: Final = "leader, Produce"
FETCH: Final = "leader, Fetch"
FOLLOWER: Final = "follower"
OTHER: Final = "other requests"
ROLES: Final = (PRODUCE, FETCH, FOLLOWER, LOOP, OTHER)
_API_ROLES: Final = {0: PRODUCE, 1: FETCH}
_CALIBRATION_CALLS: Final = 20_000

RoleOf = Callable[[tuple[Any, ...]], str]


class Measured(NamedTuple):
    """A function of a tree, `module:name` or `module:Class.name`, and where its time belongs."""

    target: str
    phase: str
    role_of: RoleOf | None = None
    """The role by the arguments; None: the role of the caller."""
    former: str | None = None
    """The target in older trees."""


class PhaseTime(NamedTuple):
    """The time of a phase, on one thread or on several."""

    name: str
    spent_ns: float
    """With the wrappers' cost,"""
    wrappers_ns: float
    """which is at least so much."""
    calls: float


def without_wrappers(phases: Iterable[PhaseTime], total_ns: float) -> dict[str, float]:
    """Return the time of each phase, together `total_ns` unless that is more than all took.

    >>> without_wrappers([PhaseTime("a", 100, 10, 1), PhaseTime("b", 60, 20, 2)], 100)
    {'a': 80.0, 'b': 20.0}
    """
    measured = list(phases)
    wrappers_ns = sum(phase.wrappers_ns for phase in measured)
    excess_ns = max(0.0, sum(phase.spent_ns for phase in measured) - total_ns)
    scale = excess_ns / wrappers_ns if wrappers_ns else 0.0
    return {phase.name: phase.spent_ns - scale * phase.wrappers_ns for phase in measured}


def place_of(target: str) -> tuple[Any, str] | None:
    """Return the module or class of a target and the name in it; None if this tree does not have it."""
    module_name, _, path = target.partition(":")
    *classes, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module_name)
        for each in classes:
            owner = getattr(owner, each)
    except (ImportError, AttributeError):
        return None
    return (owner, name) if name in vars(owner) else None


class Cell:
    """The time of one phase of one role."""

    __slots__ = ("calls", "inner_calls", "spent_ns")

    def __init__(self) -> None:
        self.spent_ns = self.calls = self.inner_calls = 0


class Stopwatch:
    """The phases of the thread that makes it.

    Order for the caller: `hold_captured` early, then `begin` and `end` in turn.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], Cell] = {}
        self._idle = self._top = self._cell(LOOP, "everything else on the loop")
        self._role = LOOP
        self._thread = get_ident()
        self._is_on = False
        self._mark_ns = 0
        self._replaced: list[tuple[Any, str, Any]] = []
        self._before_gc: list[Cell] = []
        self.missing: list[str] = []
        """The targets that this tree does not have."""
        self.inner_ns, self.outer_ns = self._calibrate()

    def hold_captured(self, captured: tuple[Measured, ...]) -> None:
        """Wrap functions that are bound before `begin`, for the life of the process."""
        for measured in captured:
            self._replace(measured)
        self._replaced.clear()

    def begin(self, measured: tuple[Measured, ...]) -> None:
        """Wrap the functions and start the clock."""
        for one in measured:
            self._replace(one)
        for cell in self._cells.values():
            cell.spent_ns = cell.calls = cell.inner_calls = 0
        gc.callbacks.append(self._collected)
        self._top, self._role, self._is_on = self._idle, LOOP, True
        self._mark_ns = time.thread_time_ns()

    def end(self) -> list[PhaseTime]:
        """Unwrap the functions; return the times of the phases."""
        self._is_on = False
        gc.callbacks.remove(self._collected)
        for owner, name, function in reversed(self._replaced):
            setattr(owner, name, function)
        self._replaced.clear()
        return [
            PhaseTime(
                f"{role}: {phase}",
                cell.spent_ns,
                cell.calls * self.inner_ns + cell.inner_calls * self.outer_ns,
                cell.calls,
            )
            for (role, phase), cell in self._cells.items()
            if cell.calls or cell is self._idle
        ]

    def _cell(self, role: str, phase: str) -> Cell:
        return self._cells.setdefault((role, phase), Cell())

    def _replace(self, measured: Measured) -> None:
        targets = [target for target in (measured.target, measured.former) if target is not None]
        found = [place for target in targets if (place := place_of(target)) is not None]
        if not found and measured.target not in self.missing:
            self.missing.append(measured.target)
        for owner, name in found:
            function = vars(owner)[name]
            self._replaced.append((owner, name, function))
            setattr(owner, name, self._timed(function, measured.phase, measured.role_of))

    def _timed(self, function: Any, phase: str, role_of: RoleOf | None) -> Any:
        cells = {role: self._cell(role, phase) for role in ROLES}
        clock, thread_of = time.thread_time_ns, get_ident

        def timed(*arguments: Any, **named: Any) -> Any:
            if not self._is_on or thread_of() != self._thread:
                return function(*arguments, **named)
            before, role_before = self._top, self._role
            role = role_before if role_of is None else role_of(arguments)
            cell = cells[role]
            now_ns = clock()
            before.spent_ns += now_ns - self._mark_ns
            before.inner_calls += 1
            self._mark_ns = now_ns
            cell.calls += 1
            self._top, self._role = cell, role
            try:
                return function(*arguments, **named)
            finally:
                now_ns = clock()
                cell.spent_ns += now_ns - self._mark_ns
                self._mark_ns = now_ns
                self._top, self._role = before, role_before

        return timed

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if get_ident() != self._thread:
            return
        now_ns = time.thread_time_ns()
        self._top.spent_ns += now_ns - self._mark_ns
        self._mark_ns = now_ns
        if phase == "start":
            self._before_gc.append(self._top)
            self._top = self._cell(LOOP, "garbage collection")
            self._top.calls += 1
        elif self._before_gc:
            self._top = self._before_gc.pop()

    def _calibrate(self) -> tuple[float, float]:
        """Return what a call of a wrapper costs its own phase and the phase around it, in nanoseconds."""

        def nothing() -> None:
            pass

        began_ns = time.thread_time_ns()
        for _ in range(_CALIBRATION_CALLS):
            nothing()
        plain_ns = (time.thread_time_ns() - began_ns) / _CALIBRATION_CALLS
        wrapped = self._timed(nothing, "calibration", None)
        self._is_on, self._mark_ns = True, time.thread_time_ns()
        for _ in range(_CALIBRATION_CALLS):
            wrapped()
        self._is_on = False
        inner_ns = self._cell(LOOP, "calibration").spent_ns / _CALIBRATION_CALLS
        outer_ns = self._idle.spent_ns / _CALIBRATION_CALLS
        self._cells = {(LOOP, "everything else on the loop"): self._idle}
        return inner_ns, max(0.0, outer_ns - plain_ns)


def by_frame(arguments: tuple[Any, ...]) -> str:
    """Return the role of `Dispatcher.dispatch(self, connection, frame)`; the connection is remembered."""
    _, connection, frame = arguments
    role = _API_ROLES.get(frame[0] << 8 | frame[1], OTHER)
    _ROLE_OF_CONNECTION[id(connection)] = role
    return role


def by_connection(arguments: tuple[Any, ...]) -> str:
    """Return the role of a method of `Connection`: that of its last request."""
    return _ROLE_OF_CONNECTION.get(id(arguments[0]), OTHER)


def by_exchange(arguments: tuple[Any, ...]) -> str:
    """Return the role of a method of an exchange, or of older trees' dispatcher with one."""
    exchange = arguments[0] if hasattr(arguments[0], "route") else arguments[1]
    return _API_ROLES.get(int(exchange.route.api_key), OTHER)


def always(role: str) -> RoleOf:
    """Return the role of functions that have one."""
    return lambda arguments: role


_ROLE_OF_CONNECTION: Final[dict[int, str]] = {}
