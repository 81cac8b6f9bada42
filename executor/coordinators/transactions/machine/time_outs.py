"""Schedule of aborts by time-out, of the expiration of unused ids, and of retried completions.

Aborts scan the open transactions at each interval, expiration all ids, of which there may be a million. Both
proceed in portions, one a tick: many ids are examined and few aborted, as a portion's records are appended in
one turn of the loop.

Source: Kafka's TransactionStateManager; the keys transaction.* and transactional.id.expiration.ms.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from sparklog.protocol.types import NO_TRANSACTION_TIMEOUT_MS

DECIDED_AT_A_TIME: Final = 50
"""The most transactions that a tick ends, each by a batch of its own: some milliseconds."""
_EXAMINED_AT_A_TIME: Final = 1_000
_PAUSE_MS: Final = 1
_COMPLETION_BACKOFF_MS: Final = 100


class TransactionLimits(NamedTuple):
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
    two_phase_commit_prefixes: tuple[str, ...] = ()
    """sparklog.two.phase.commit.transactional.id.prefixes"""

    def allow_timeout(self, transactional_id: str, timeout_ms: int) -> bool:
        if timeout_ms == NO_TRANSACTION_TIMEOUT_MS and (
            self.two_phase_commit_enable or transactional_id.startswith(self.two_phase_commit_prefixes)
        ):
            return True
        return 0 < timeout_ms <= self.max_timeout_ms


class _Walk:
    def __init__(self, interval_ms: int, most: int) -> None:
        """`most` limits the ids found in a portion."""
        self.due_ms: int | None = None
        self._interval_ms = interval_ms
        self._most = most
        self._left: Iterator[str] | None = None

    def begin(self, monotonic_ms: int) -> None:
        self.due_ms = monotonic_ms + self._interval_ms

    def next_portion(
        self, ids: Iterable[str], is_wanted: Callable[[str], bool], monotonic_ms: int
    ) -> list[str]:
        """Return the wanted ids of the next portion, if it is due; `due_ms` is soon while some are left."""
        if self.due_ms is None or monotonic_ms < self.due_ms:
            return []
        if self._left is None:
            self._left = iter(list(ids))
        wanted = []
        examined = 0
        for each in islice(self._left, _EXAMINED_AT_A_TIME):
            examined += 1
            if is_wanted(each):
                wanted.append(each)
                if len(wanted) == self._most:
                    break
        if examined < _EXAMINED_AT_A_TIME and len(wanted) < self._most:
            self._left = None
            self.due_ms = monotonic_ms + self._interval_ms
        else:
            self.due_ms = monotonic_ms + _PAUSE_MS
        return wanted


class Schedule:
    """Times of the next aborts, expirations and completions, by the monotonic clock."""

    def __init__(self, limits: TransactionLimits) -> None:
        self._aborts = _Walk(limits.abort_interval_ms, DECIDED_AT_A_TIME)
        self._expiry = _Walk(limits.expiration_interval_ms, _EXAMINED_AT_A_TIME)
        self._uncompleted: dict[str, tuple[Any, int]] = {}
        """Transactions whose completion failed, and the time of the retry; the soonest first."""
        self._next_portion_ms = 0

    def begin(self, monotonic_ms: int) -> None:
        """Start the intervals; until then nothing is due."""
        self._aborts.begin(monotonic_ms)
        self._expiry.begin(monotonic_ms)

    @property
    def next_due_ms(self) -> int | None:
        due = (self._aborts.due_ms, self._expiry.due_ms, self._completions_due_ms)
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    @property
    def uncompleted_count(self) -> int:
        """Number of transactions with all markers that are not completed yet."""
        return len(self._uncompleted)

    @property
    def _completions_due_ms(self) -> int | None:
        first = next(iter(self._uncompleted.values()), None)
        return None if first is None else max(first[1], self._next_portion_ms)

    def complete_later(self, transactional_id: str, producer: Any, monotonic_ms: int) -> None:
        """Retry a completion that could not be appended; later failures do not delay it."""
        self._uncompleted.pop(transactional_id, None)
        self._uncompleted[transactional_id] = producer, monotonic_ms + _COMPLETION_BACKOFF_MS

    def to_complete(self, monotonic_ms: int) -> list[tuple[str, Any]]:
        """Take the completions to retry now; while some are left, the next tick is due soon."""
        if monotonic_ms < self._next_portion_ms:
            return []
        due = takewhile(lambda item: item[1][1] <= monotonic_ms, self._uncompleted.items())
        taken = [
            (transactional_id, producer) for transactional_id, (producer, _) in islice(due, DECIDED_AT_A_TIME)
        ]
        for transactional_id, _ in taken:
            del self._uncompleted[transactional_id]
        self._next_portion_ms = monotonic_ms + _PAUSE_MS
        return taken

    def to_abort(
        self, ongoing: Iterable[str], has_timed_out: Callable[[str], bool], monotonic_ms: int
    ) -> list[str]:
        return self._aborts.next_portion(ongoing, has_timed_out, monotonic_ms)

    def to_forget(
        self, transactions: Iterable[str], has_expired: Callable[[str], bool], monotonic_ms: int
    ) -> list[str]:
        return self._expiry.next_portion(transactions, has_expired, monotonic_ms)
