"""How long to pause before something that failed is tried again.

A dead broker's partitions have new leaders within tens of milliseconds, so what a producer or a reader waits
beyond that is its own pauses: the first ones are alike, and only what goes on failing is asked for less and
less often (KIP-580).
"""

from typing import Final, NamedTuple

__all__ = ["RetryBackoff"]

_EVEN_PAUSES: Final = 10


class RetryBackoff(NamedTuple):
    """The pauses of `retry.backoff.ms` and `retry.backoff.max.ms`."""

    first_ms: int
    max_ms: int

    def pause_ms(self, failures: int, *, connection_lost: bool = False) -> int:
        """Return the pause after a failure that had so many before it, in a row.

        None after a connection that was lost when all was well: only asking can tell what that means.

        >>> backoff = RetryBackoff(first_ms=20, max_ms=1_000)
        >>> [backoff.pause_ms(failures) for failures in (0, 9, 10, 11, 14, 15, 1_000)]
        [20, 20, 40, 80, 640, 1000, 1000]
        >>> backoff.pause_ms(0, connection_lost=True), backoff.pause_ms(1, connection_lost=True)
        (0, 20)
        """
        if connection_lost and failures == 0:
            return 0
        doublings = min(max(failures - _EVEN_PAUSES + 1, 0), self.max_ms.bit_length())
        return min(self.first_ms << doublings, self.max_ms)
