"""The times at which the keys of an identity provider are fetched.

Every `refresh_ms`; after a failure sooner, with growing pauses, until it has worked. And when a token names
an unknown key, since providers publish new keys before they sign with them: but such a token may be forged,
so at most once in `MIN_EXPEDITED_MS`.

Source: Kafka's RefreshingHttpsJwks, which remembers the names of keys for that, and after a few failures in a
row waits for the next regular time.
"""

from typing import Final

from sparklog.node.exponential_backoff import ExponentialBackoff

MIN_EXPEDITED_MS: Final = 10_000


class RefreshTimes:
    """The times of one key set; all times are monotonic."""

    def __init__(self, refresh_ms: int, retry_backoff: ExponentialBackoff) -> None:
        self._refresh_ms = refresh_ms
        self._retry_backoff = retry_backoff
        self._failures = 0
        self._begun_ms: int | None = None
        self.due_ms = 0

    def begun(self, now_ms: int) -> None:
        self._begun_ms = now_ms

    def fetched(self, now_ms: int) -> None:
        self._failures = 0
        self.due_ms = now_ms + self._refresh_ms

    def failed(self, now_ms: int) -> None:
        pause_ms = self._retry_backoff.pause_ms(self._failures)
        self._failures += 1
        self.due_ms = now_ms + pause_ms

    def missing(self, now_ms: int) -> bool:
        """Note a token with an unknown key; return whether to fetch at once."""
        if self._begun_ms is not None and now_ms - self._begun_ms < MIN_EXPEDITED_MS:
            return False
        self.due_ms = min(self.due_ms, now_ms)
        return True
