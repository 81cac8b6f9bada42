"""Simulated time: what happens next, and the one source of chance.

Rule: nothing else in a simulation knows a clock or throws a die. Events of the same millisecond happen in an
order that the seed chooses, so every interleaving of independent events is possible; the same seed gives the
same order, on any machine.
"""

import heapq
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any


class Scheduler:
    """The events to come."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.event_count = 0
        self._queue: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._hash = blake2b(digest_size=8)

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Have `action` happen in `delay_ms` of simulated time."""
        self._number += 1
        entry = (self.now_ms + delay_ms, self.random.random(), self._number, action, arguments)
        heapq.heappush(self._queue, entry)

    def step(self) -> None:
        """Let the next event happen."""
        self.now_ms, _, number, action, arguments = heapq.heappop(self._queue)
        self.event_count += 1
        self._hash.update(b"%d %d %s\n" % (self.now_ms, number, action.__name__.encode()))
        action(*arguments)

    def note(self, text: str) -> None:
        """Make `text` part of the trace."""
        self._hash.update(text.encode())

    @property
    def trace_hash(self) -> str:
        """What two runs have in common that did the same in the same order."""
        return self._hash.hexdigest()
