"""Batches and markers of transactions that a cleaning may remove (KIP-98, KIP-534).

Pure. A cleaning walks through a log from its start and passes each batch in order. Rules kept, as in Kafka's
CleanedTransactionMetadata:

- Records of an aborted transaction are removed at once: no consumer sees them.
- A marker may be removed once no batch of its transaction is left, at the earliest one cleaning later; and
  only after a delete horizon, so that a consumer that has read records of the transaction finds its end.
- An aborted transaction stays in the transaction index while a batch of it was in the log at the start of
  this cleaning, even one kept only for its producer's sequence numbers.
"""

from collections import deque
from collections.abc import Iterable

from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.protocol.records.batch import BatchHeader
from sparklog.protocol.types import Offset, ProducerId


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransactionEntry]) -> None:
        """`aborted` are those with batches or a marker in the cleaned range."""
        self._aborted = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._open_aborted: dict[ProducerId, AbortedTransactionEntry] = {}
        self._seen_aborted: set[ProducerId] = set()
        """Producers of `_open_aborted` with a batch in the log."""
        self._open_committed: set[ProducerId] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take the next data batch; return whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._open_aborted:
            self._seen_aborted.add(producer_id)
            return True
        self._open_committed.add(producer_id)
        return False

    def end(self, header: BatchHeader, *, aborted: bool) -> tuple[bool, AbortedTransactionEntry | None]:
        """Take the next marker; return whether its transaction has no batch left, and the entry to index."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if not aborted:
            was_seen = producer_id in self._open_committed
            self._open_committed.discard(producer_id)
            return not was_seen, None
        entry = self._open_aborted.pop(producer_id, None)
        if entry is None or producer_id not in self._seen_aborted:
            return True, None
        self._seen_aborted.remove(producer_id)
        return False, entry

    def _begin_up_to(self, offset: Offset) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._open_aborted.setdefault(entry.producer_id, entry)
