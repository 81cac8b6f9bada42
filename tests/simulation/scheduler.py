"""Simulated time: what happens next, and the one source of chance.

Rule: nothing else in a simulation knows a clock or throws a die. Events of the same millisecond happen in an
order that the seed chooses, so every interleaving of independent events is possible; the same seed gives the
same order, on any machine.
"""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any
from zlib import crc32


class Scheduler:
    """The events to come."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.event_count = 0
        self._queue: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._trace = 0
        # Both are called for every event.
        self._chance = self.random.random
        self._push = heapq.heappush

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Have `action` happen in `delay_ms` of simulated time."""
        self._number += 1
        self._push(self._queue, (self.now_ms + delay_ms, self._chance(), self._number, action, arguments))

    def step(self) -> None:
        """Let the next event happen."""
        self.now_ms, _, number, action, arguments = heapq.heappop(self._queue)
        self.event_count += 1
        # Whole numbers hash alike everywhere, and the number of an event says which one it is.
        self._trace = hash((self._trace, self.now_ms, number))
        action(*arguments)

    def note(self, text: str) -> None:
        """Make `text` part of the trace."""
        self._trace = hash((self._trace, crc32(text.encode())))

    @property
    def trace_hash(self) -> str:
        """What two runs have in common that did the same in the same order."""
        return f"{self._trace % 2**64:016x}"
