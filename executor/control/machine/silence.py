"""The time without a sign of life, as far as the listener itself was running. Pure."""

from typing import Final

LONGEST_LOOK_MS: Final = 1_000
"""A longer time between two checks means that the listener was not running either."""


class Silence:
    """Rule: time in which the listener itself stood still does not count."""

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self._limit_ms = limit_ms
        self._since_ms = now_ms
        self._looked_ms = now_ms

    def heard(self, now_ms: int) -> None:
        self._since_ms = self._looked_ms = now_ms

    def is_too_long(self, now_ms: int) -> bool:
        gap_ms = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if gap_ms > LONGEST_LOOK_MS:
            self._since_ms = min(now_ms, self._since_ms + gap_ms)
        return now_ms - self._since_ms >= self._limit_ms
