"""The pauses between retries. Pure: the caller counts its failures.

Named after Kafka's class; the random part that Kafka adds is the caller's (KIP-580).
"""

from typing import NamedTuple


class ExponentialBackoff(NamedTuple):
    """Pauses that double from `first_ms` up to `max_ms`; the first `even_pauses` are equal."""

    first_ms: int
    max_ms: int
    even_pauses: int = 1

    def pause_ms(self, failures: int) -> int:
        """Return the pause after a failure, given the number of failures in a row before it.

        >>> backoff = ExponentialBackoff(first_ms=20, max_ms=1_000)
        >>> [backoff.pause_ms(failures) for failures in (0, 1, 2, 5, 6, 1_000)]
        [20, 40, 80, 640, 1000, 1000]
        >>> [backoff._replace(even_pauses=10).pause_ms(failures) for failures in (0, 9, 10, 11)]
        [20, 20, 40, 80]
        """
        doublings = min(max(failures - self.even_pauses + 1, 0), self.max_ms.bit_length())
        return min(self.first_ms << doublings, self.max_ms)
