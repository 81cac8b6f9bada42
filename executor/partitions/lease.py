"""This broker's lease on its leaderships, as its replicas obey it.

Lead while the lease holds: acknowledge and serve nothing when it has run out, since others may lead. Once it
holds again, partitions that no later metadata gave to other brokers are led on.

Order for the caller: `obey` before anything is done as a leader, and every few hundred milliseconds once it
does not last (`lasts_for`) until the next time. Ticks alone would not do: a process that was stopped finds
its requests before its timers.
"""

import logging
from collections.abc import Callable

from sparklog.executor.partitions.table import PartitionTable

logger = logging.getLogger(__name__)


class Lease:
    def __init__(
        self, table: PartitionTable, holds: Callable[[int], bool], now_ms: Callable[[], int]
    ) -> None:
        """`holds` returns whether this broker may lead at a time of the monotonic clock."""
        self.is_held = True
        self._table = table
        self._holds = holds
        self._now_ms = now_ms

    def lasts_for(self, time_ms: int) -> bool:
        """Whether the lease holds for so long, as far as is known now."""
        return self._holds(self._now_ms() + time_ms)

    def obey(self) -> None:
        """Suspend or resume every replica if the lease has run out or holds again."""
        is_held = self._holds(self._now_ms())
        if is_held is self.is_held:
            return
        self.is_held = is_held
        if not is_held:
            led = self._table.leader_count
            logger.warning("The lease has run out: %d partitions are led no more for now", led)
        for replica in self._table:
            if is_held:
                replica.resume()
            else:
                replica.suspend()
