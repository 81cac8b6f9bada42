"""Timers of a coordinator's machine, by keys.

Each heartbeat prolongs a session, thousands of times before one expires. So a timer that moves back keeps its
place in the heap, and is pushed again when that place comes up.

Order for the caller: `pop_due` until it returns None, whenever `next_due_ms` has come; between two calls the
popped action may schedule and cancel. Times are monotonic.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now

Action = Callable[[Now], CoordinatorResult | None]

_SLACK: Final = 64
_RELEASED_AT_ONCE: Final = 1_000


class _Timer:
    __slots__ = ("action", "due_ms", "place_ms")

    def __init__(self, due_ms: int, action: Action) -> None:
        self.due_ms = due_ms
        self.place_ms = due_ms
        """Time of its entry in the heap, never later than `due_ms`."""
        self.action = action


class Timers:
    """Actions due at a time, one under each key.

    >>> timers = Timers()
    >>> timers.schedule("session", 100, lambda now: None)
    >>> timers.schedule("session", 300, lambda now: None)
    >>> timers.next_due_ms, timers.pop_due(100), timers.next_due_ms
    (100, None, 300)
    """

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._scheduled = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    @property
    def next_due_ms(self) -> int | None:
        """Time of the next `pop_due`, perhaps before any timer is due; None if there is nothing to pop."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, key: Hashable, due_ms: int, action: Action) -> None:
        timer = self._timers.get(key)
        if timer is not None and timer.place_ms <= due_ms:
            timer.due_ms = due_ms
            timer.action = action
            return
        self._timers[key] = _Timer(due_ms, action)
        self._push(due_ms, key)

    def soon(self, action: Action) -> None:
        """Run `action` once, after the current decision has been replayed."""
        self.schedule(("soon", self._scheduled), 0, action)

    def cancel(self, key: Hashable) -> None:
        self._timers.pop(key, None)

    def release(self) -> Iterator[None]:
        """Drop all timers in slices: the actions refer to the machine that has these timers."""
        while self._timers or self._heap:
            for _ in range(min(len(self._timers), _RELEASED_AT_ONCE)):
                self._timers.popitem()
            del self._heap[-_RELEASED_AT_ONCE:]
            yield

    def pop_due(self, now_ms: int) -> Action | None:
        """Remove and return the action that has been due longest; None if none is due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            place_ms, _, key = heappop(heap)
            timer = self._timers.get(key)
            if timer is None or timer.place_ms != place_ms:
                continue
            if timer.due_ms > now_ms:
                timer.place_ms = timer.due_ms
                self._push(timer.due_ms, key)
                continue
            del self._timers[key]
            return timer.action
        return None

    def _push(self, due_ms: int, key: Hashable) -> None:
        if len(self._heap) > 2 * len(self._timers) + _SLACK:  # mostly of what was cancelled
            self._heap = [
                (timer.place_ms, number, live)
                for number, (live, timer) in enumerate(self._timers.items(), start=self._scheduled)
                if live != key
            ]
            heapify(self._heap)
            self._scheduled += len(self._heap)
        self._scheduled += 1
        heappush(self._heap, (due_ms, self._scheduled, key))
