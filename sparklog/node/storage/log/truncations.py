"""Truncations of a log while other threads read it.

A look-up holds no lock: it may wait for a disk, and appends must not wait for it. Instead it counts
truncations: if there was one meanwhile, its result (a record, nothing, a damaged batch) may stem from the
middle of the change, and it is repeated. Appends and dropped segments need no such check: results from before
them remain true.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Truncations:
    def __init__(self) -> None:
        self.begun = 0
        """Number of truncations so far."""
        self._running = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold up look-ups and flushes during a truncation."""
        with self._running:
            self.begun += 1
            yield

    @contextmanager
    def excluded(self) -> Iterator[int]:
        """Exclude truncations; yields their number so far."""
        with self._running:
            yield self.begun
