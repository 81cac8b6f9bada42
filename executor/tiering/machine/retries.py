"""When an effect that failed is tried again."""

from typing import Final

from sparklog.node.exponential_backoff import ExponentialBackoff

_BACKOFF: Final = ExponentialBackoff(first_ms=200, max_ms=10_000)
"""Copies lag by the last pause once a store is back; the partitions of a broker share its requests."""


class Retries:
    def __init__(self) -> None:
        self.failures = 0
        """In a row."""
        self.error: str | None = None
        """The last one, until something succeeds."""
        self.failing_since_ms: int | None = None
        """The time of the first failure in a row."""
        self._next_ms: int | None = None

    def may_try(self, now_ms: int) -> bool:
        return self._next_ms is None or now_ms >= self._next_ms

    def failed(self, error: str, now_ms: int) -> None:
        self._next_ms = now_ms + _BACKOFF.pause_ms(self.failures)
        self.failures += 1
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        self.error = error

    def at_once(self) -> None:
        """Let the next attempt wait no longer."""
        self._next_ms = None

    def succeeded(self) -> None:
        self.failures = 0
        self.error = self._next_ms = self.failing_since_ms = None
