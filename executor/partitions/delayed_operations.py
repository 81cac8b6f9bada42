"""Requests that wait: for acknowledgements, for records to fetch, for replicas to delete.

However many wait, there is one timer and one wake-up a turn of the event loop. Deadlines fall into buckets of
`RESOLUTION_MS`; entering and leaving a bucket is O(1), and the timer runs for the earliest bucket only.
Deadlines are the clients' choice and may be weeks away: buckets that have emptied before they were due are
swept once they are the most of all. An append or a high watermark that makes an operation ready calls `wake`,
and all that were woken in one turn are checked together after it: ten appends that came in one read cost one
response to each follower. The number that waits is bounded by the listener, which limits connections and the
requests outstanding on each.

Rule: an operation is completed exactly once, by its condition, its deadline or the loss of its
connection, and is in no bucket afterwards.
"""

import heapq
from asyncio import Future
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final, Protocol, TypeVar

from sparklog.node.loop.turn_loop import at_turn_end

Result = TypeVar("Result")

RESOLUTION_MS: Final = 10
"""Operations expire up to this much late, never early."""

_KEPT_EMPTY: Final = 64
"""The number of empty buckets that is not worth a sweep."""


class Waiting(Protocol):
    def expire(self) -> None:
        """Act on the deadline; the operation is in no bucket any more."""

    def recheck(self) -> None:
        """Check the operation's condition, after a wake-up in this turn of the loop."""


class Deadlines:
    """The operations by their deadlines. Pure."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Waiting, None]] = {}
        self._order: list[int] = []
        """A heap of the buckets' keys."""
        self._empty_count = 0
        """How many of the buckets have emptied."""

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, operation: Waiting, deadline_ms: int) -> int:
        """Add an operation; return the bucket to pass to `discard`."""
        bucket = -(-deadline_ms // RESOLUTION_MS)
        members = self._buckets.get(bucket)
        if members is None:
            members = self._buckets[bucket] = {}
            heapq.heappush(self._order, bucket)
        elif not members:
            self._empty_count -= 1
        members[operation] = None
        return bucket

    def discard(self, operation: Waiting, bucket: int) -> None:
        """Remove an operation, which may have expired already."""
        members = self._buckets.get(bucket)
        if members is None or operation not in members:
            return
        del members[operation]
        if not members:
            self._empty_count += 1
            if self._empty_count > max(_KEPT_EMPTY, len(self._buckets) // 2):
                self._sweep()

    @property
    def next_due_ms(self) -> int | None:
        """The time of the earliest bucket, or None without any; it may be empty by then."""
        return self._order[0] * RESOLUTION_MS if self._order else None

    def take_due(self, now_ms: int) -> list[Waiting]:
        """Remove and return the expired operations, earliest first."""
        due: list[Waiting] = []
        while self._order and self._order[0] * RESOLUTION_MS <= now_ms:
            members = self._buckets.pop(heapq.heappop(self._order))
            if not members:
                self._empty_count -= 1
            due.extend(members)
        return due

    def _sweep(self) -> None:
        self._buckets = {bucket: members for bucket, members in self._buckets.items() if members}
        self._order = sorted(self._buckets)
        self._empty_count = 0


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The methods of an event loop that are used here; a simulator has them, too."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], None], /) -> Any: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer: ...

    def run_in_executor(
        self, executor: Executor, function: Callable[..., Result], /, *arguments: Any
    ) -> "Future[Result]": ...


class DelayedOperations:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._deadlines = Deadlines()
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._woken: dict[Waiting, None] = {}
        self._call_at_turn_end = at_turn_end(loop)

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, operation: Waiting, deadline_ms: int) -> int:
        """Add an operation that expires at `deadline_ms` of the monotonic time; return its bucket."""
        bucket = self._deadlines.add(operation, deadline_ms)
        due_ms = bucket * RESOLUTION_MS
        if self._timer is None or due_ms < self._timer_ms:
            self._set_timer(due_ms)
        return bucket

    def discard(self, operation: Waiting, bucket: int) -> None:
        self._deadlines.discard(operation, bucket)
        self._woken.pop(operation, None)

    def wake(self, operation: Waiting) -> None:
        """Recheck the operation after the callbacks of this turn of the loop."""
        if not self._woken:
            self._call_at_turn_end(self._recheck_woken)
        self._woken[operation] = None

    def run_in_executor(
        self, executor: Executor, function: Callable[..., Result], *arguments: Any
    ) -> "Future[Result]":
        """Run a function in a thread, while the loop goes on."""
        return self._loop.run_in_executor(executor, function, *arguments)

    def expire_all(self) -> None:
        """Expire all waiting operations: the broker shuts down."""
        last = 1 << 62
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _call_all(operation.expire for operation in self._deadlines.take_due(last))

    def _recheck_woken(self) -> None:
        woken, self._woken = self._woken, {}
        _call_all(operation.recheck for operation in woken)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._loop.call_at(due_ms / 1000, self._expire_due)

    def _expire_due(self) -> None:
        self._timer = None
        try:
            _call_all(operation.expire for operation in self._deadlines.take_due(self.now_ms()))
        finally:
            due_ms = self._deadlines.next_due_ms
            if due_ms is not None and self._timer is None:
                self._set_timer(due_ms)


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Call all, then raise the first error, so that an error in one does not keep the others waiting."""
    first_error: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
