"""When a coordinator looks for transactions that have timed out, and for ids that nobody uses any more.

Aborts look at the open transactions at each interval. Expiry looks at all ids, of which there may be a
million, and does so in portions, one a tick.

Source: Kafka's TransactionStateManager; the keys transaction.* and transactional.id.expiration.ms.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from executor.coordinators.transactions.machine.metadata import NO_TIMEOUT_MS

__all__ = ["Schedule", "TransactionLimits"]

_EXAMINED_AT_A_TIME: Final = 1_000
_COMPLETION_BACKOFF_MS: Final = 100


class TransactionLimits(NamedTuple):
    """What is configured, of Kafka's keys."""

    max_timeout_ms: int
    """transaction.max.timeout.ms"""
    expiration_ms: int
    """transactional.id.expiration.ms"""
    abort_interval_ms: int
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiration_interval_ms: int
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    two_phase_commit_enable: bool
    """transaction.two.phase.commit.enable"""

    def allow_timeout(self, timeout_ms: int) -> bool:
        """Whether a client may have transactions of that time-out."""
        if timeout_ms == NO_TIMEOUT_MS and self.two_phase_commit_enable:
            return True
        return 0 < timeout_ms <= self.max_timeout_ms


class Schedule:
    """What is due when, by the monotonic clock."""

    def __init__(self, limits: TransactionLimits) -> None:
        self._limits = limits
        self._aborts_due_ms: int | None = None
        self._expiry_due_ms: int | None = None
        self._completions_due_ms: int | None = None
        self._to_examine: Iterator[str] | None = None
        """The ids that an expiry has left to look at."""

    def begin(self, monotonic_ms: int) -> None:
        """Count the intervals from now on; until then nothing is due."""
        self._aborts_due_ms = monotonic_ms + self._limits.abort_interval_ms
        self._expiry_due_ms = monotonic_ms + self._limits.expiration_interval_ms

    @property
    def next_due_ms(self) -> int | None:
        """When something is due next."""
        due = (self._aborts_due_ms, self._expiry_due_ms, self._completions_due_ms)
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def complete_later(self, monotonic_ms: int) -> None:
        """Something is complete that could not be appended."""
        self._completions_due_ms = monotonic_ms + _COMPLETION_BACKOFF_MS

    def completions_are_due(self, monotonic_ms: int) -> bool:
        """Whether to try again what could not be appended."""
        if self._completions_due_ms is None or monotonic_ms < self._completions_due_ms:
            return False
        self._completions_due_ms = None
        return True

    def aborts_are_due(self, monotonic_ms: int) -> bool:
        """Whether to look for transactions that have timed out now; the next time is an interval on."""
        if self._aborts_due_ms is None or monotonic_ms < self._aborts_due_ms:
            return False
        self._aborts_due_ms = monotonic_ms + self._limits.abort_interval_ms
        return True

    def to_examine(self, transactions: Mapping[str, Any], monotonic_ms: int) -> list[str]:
        """Return the next ids that may have expired; while some are left, the next tick is due soon."""
        if self._expiry_due_ms is None or monotonic_ms < self._expiry_due_ms:
            return []
        if self._to_examine is None:
            self._to_examine = iter(list(transactions))
        portion = list(islice(self._to_examine, _EXAMINED_AT_A_TIME))
        if len(portion) < _EXAMINED_AT_A_TIME:
            self._to_examine = None
            self._expiry_due_ms = monotonic_ms + self._limits.expiration_interval_ms
        else:
            self._expiry_due_ms = monotonic_ms + 1
        return portion
