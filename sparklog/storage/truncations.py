"""Cutting a log while other threads look things up in it.

A look-up holds no lock: it may wait for a disk, and whoever appends must not wait for it. Instead it counts:
if the log was cut meanwhile, whatever it found (a record, nothing, a damaged batch) may have come from the
middle of the change, and it looks again. Appends and dropped segments need no such thing: what they leave is
as true as what was there before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Truncations:
    """The truncations of one log."""

    def __init__(self) -> None:
        self.begun = 0
        """How many there were."""
        self._running = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold look-ups and flushes up while the log is being cut."""
        with self._running:
            self.begun += 1
            yield

    @contextmanager
    def excluded(self) -> Iterator[int]:
        """Let none run meanwhile; yields how many there were."""
        with self._running:
            yield self.begun
