"""The pauses of copies: replicas out of sync leave a broker's loop to those in sync. Pure.

A replica that moves, or comes back, copies whole logs as fast as brokers can send and append them. Producers
with acks=all wait for the replicas in sync, whose fetches come between those copies: with a gigabyte to move
they waited for seconds. So after an answer with records for copies all copies of the broker pause for a
multiple of the time in which those were appended. It is the time of the wall clock: while processors are busy
with something else the same bytes take longer, and copies give way to that, too. At the usual millisecond a
megabyte a broker copies 60 MB/s.

A copy must be faster than its producers, or it never ends. Each interval the records that were fetched are
compared with those that were written meanwhile: unless copies gain on the leaders by at least a quarter, the
pauses become half as long, down to none, and otherwise twice as long again, up to `MOST_PAUSES`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from sparklog.protocol.types import TopicIdPartition

MOST_PAUSES: Final = 15
"""Pauses are so many times as long as what was appended took."""
LONGEST_PAUSE_US: Final = 500_000
"""An append that a slow disk delays says little of the next one."""
INTERVAL_US: Final = 1_000_000


class Copied(NamedTuple):
    """The records of one answer for a replica out of sync."""

    partition: TopicIdPartition
    record_count: int
    lag: int
    """The records up to the leader's high watermark that remain."""


class CopyPace:
    def __init__(self) -> None:
        self._free_us = 0
        """The end of the pause."""
        self._pauses: float = MOST_PAUSES
        self._interval_ends_us = 0
        self._lags: dict[TopicIdPartition, int] = {}
        """The lags in this interval, as of the last answers."""
        self._fetched = self._written = 0
        """The records of partitions in `_lags` since their first answers of the interval."""

    def took(self, copied: Iterable[Copied], took_us: int, now_us: int) -> None:
        """Note what was appended for copies, in so much time until now.

        >>> pace = CopyPace()
        >>> pace.took([], 10_000, 2_000_000)
        >>> pace.pause_us(2_000_000), pace.pause_us(2_060_000)
        (150000, 90000)
        """
        if now_us >= self._interval_ends_us:
            self._begin_interval(now_us)
        for partition, record_count, lag in copied:
            before = self._lags.get(partition)
            self._lags[partition] = lag
            if before is not None:
                self._fetched += record_count
                self._written += lag + record_count - before
        free_us = max(self._free_us, now_us) + int(self._pauses * took_us)
        self._free_us = min(free_us, now_us + LONGEST_PAUSE_US)

    def pause_us(self, now_us: int) -> int:
        """Return how long copies pause from now on, in microseconds."""
        return max(self._free_us - now_us, 0)

    def _begin_interval(self, now_us: int) -> None:
        if self._fetched and 4 * self._written > 3 * self._fetched:
            self._pauses = self._pauses / 2 if self._pauses > 1 else 0
        else:
            self._pauses = min(max(2 * self._pauses, 1), MOST_PAUSES)
        self._interval_ends_us = now_us + INTERVAL_US
        self._lags.clear()
        self._fetched = self._written = 0
