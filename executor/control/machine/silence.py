"""The time without a sign of life, as far as the listener itself was running. Pure."""

from typing import Final

LONGEST_DELAY_MS: Final = 500
"""A check that is later than this means that the listener was not running either."""


class Silence:
    """Rule: time in which the listener itself stood still does not count."""

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self._limit_ms = limit_ms
        self._since_ms = now_ms
        self._looked_ms = now_ms
        self._pause_ms = 0

    def heard(self, now_ms: int) -> None:
        self._since_ms = self._looked_ms = now_ms

    def pauses(self, pause_ms: int) -> None:
        """Note the time to the next check, at most."""
        self._pause_ms = pause_ms

    def is_too_long(self, now_ms: int) -> bool:
        gap_ms = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if gap_ms - self._pause_ms > LONGEST_DELAY_MS:
            self._since_ms = min(now_ms, self._since_ms + gap_ms)
        return now_ms - self._since_ms >= self._limit_ms
