"""The slow coordinators, for which the transactions of others must not wait. Pure.

A broker coordinates many partitions of `__transaction_state`, and answers for all of them at once. One of
them whose records are not committed, as when a follower stands still, would hold up what is asked of the
others. So its transactions go into requests of their own, until one of them is answered well again.

Order for the caller: `is_slow` before each question; `answered` after it.
"""

from collections.abc import Iterable
from typing import Final

from sparklog.protocol.errors import ErrorCode

_LATE: Final = frozenset({ErrorCode.coordinator_not_available, ErrorCode.network_exception})


class SlowCoordinators:
    """The partitions of `__transaction_state` whose last answers were late, or none."""

    def __init__(self) -> None:
        self._partitions: set[int] = set()

    def is_slow(self, partition: int) -> bool:
        """Whether transactions of a partition's coordinator go into requests of their own."""
        return partition in self._partitions

    def answered(self, partition: int, error_codes: Iterable[ErrorCode]) -> None:
        """Note the errors of a coordinator's last answer."""
        if _LATE.isdisjoint(error_codes):
            self._partitions.discard(partition)
        else:
            self._partitions.add(partition)
