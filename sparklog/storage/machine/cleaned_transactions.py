"""Which batches and markers of transactions a cleaning need not keep (KIP-98, KIP-534).

Pure. A cleaning walks through a log from its start and shows each batch, in order. Rules kept, as in Kafka's
CleanedTransactionMetadata:

- What an aborted transaction wrote goes at once: nobody is shown it.
- A marker may go once nothing of its transaction is left in the log, which is one cleaning later at the
  earliest; and then by way of a delete horizon, so that whoever has read records of the transaction while
  they were there finds its end.
- An aborted transaction stays in the transaction index as long as a batch of it was there when this cleaning
  began, if only to say which sequence numbers its producer has used.
"""

from collections import deque
from collections.abc import Iterable

from sparklog.records.batch import BatchHeader
from sparklog.storage.transaction_index import AbortedTransactionEntry
from sparklog.types import Offset, ProducerId


class CleanedTransactions:
    """The transactions on the way through one log."""

    def __init__(self, aborted: Iterable[AbortedTransactionEntry]) -> None:
        """`aborted` are those that have batches or their marker in what is shown."""
        self._aborted = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._open_aborted: dict[ProducerId, AbortedTransactionEntry] = {}
        self._seen_aborted: set[ProducerId] = set()
        """Those of `_open_aborted` of which a batch was seen."""
        self._open_committed: set[ProducerId] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take the next data batch; say whether it is of an aborted transaction."""
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
        """Take the next marker; say whether nothing of its transaction was seen, and what of it to index."""
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
