"""The bytes of one answer to a follower, bounded so that appending them is a short turn of the loop. Pure.

A replica that copies a whole log gets as much as an answer may have, 10 MiB. Of batches of 16 KiB that is
some milliseconds of work. Of batches with one small record it is a third of a second, in which the broker
serves no producer, and fetches nothing for partitions in whose ISR it is: writes with acks=all wait for it,
on all of their leaders. So the processor time of each large answer bounds the next one. A partition may have
a share of it, so that those that are copied leave room for the others.
"""

from typing import Final

TURN_US: Final = 5_000
LEAST_BYTES: Final = 128 * 1024
_SHARES: Final = 4
MEASURED_BYTES: Final = LEAST_BYTES // _SHARES // 2
"""An answer with so many bytes for a partition is measured: others are not worth a look at the clock."""


class TurnSize:
    def __init__(self, max_bytes: int, partition_max_bytes: int) -> None:
        """Begin with the configured bounds, which are never exceeded."""
        self._most_bytes, self._most_partition_bytes = max_bytes, partition_max_bytes
        self.max_bytes = max_bytes
        """The bound of the next answer."""

    @property
    def partition_max_bytes(self) -> int:
        """The bound of each partition in it."""
        if self.max_bytes == self._most_bytes:
            return self._most_partition_bytes
        return min(self._most_partition_bytes, max(self.max_bytes // _SHARES, 1))

    def took(self, fetched_bytes: int, processor_us: int) -> None:
        """Note that an answer with so many bytes was appended in so much processor time.

        >>> size = TurnSize(10_000_000, 1_000_000)
        >>> size.took(5_000_000, 50_000)
        >>> size.max_bytes, size.partition_max_bytes
        (500000, 125000)
        """
        fitting_bytes = fetched_bytes * TURN_US // max(processor_us, 1)
        if fitting_bytes < self.max_bytes:
            self.max_bytes = min(max(fitting_bytes, LEAST_BYTES), self._most_bytes)
        elif 2 * fetched_bytes >= self.partition_max_bytes:  # a single lagging partition fills no more
            self.max_bytes = min(fitting_bytes, 2 * self.max_bytes, self._most_bytes)
