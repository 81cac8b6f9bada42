"""First pass of a cleaning: the last offset of every key in the part that was written since the last round.

Windows come in order, beginning with the first that reaches above `first_dirty_offset`. Rule kept: the map
has all keys of a batch or none, since its tombstones expire together; only a batch too large for the map is
split.
"""

from collections.abc import Iterable

import numpy as np

from sparklog.node.storage.cleaning.batch_windows import Window, records_in_groups
from sparklog.node.storage.cleaning.key_hashes import KeyHashes
from sparklog.node.storage.cleaning.offset_map import OffsetMap
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.machine.cleaned_transactions import CleanedTransactions
from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.protocol.types import Offset


class KeyMapping:
    def __init__(
        self,
        offset_map: OffsetMap,
        hashes: KeyHashes,
        aborted: Iterable[AbortedTransactionEntry],
        first_dirty_offset: Offset,
        end_offset: Offset,
        max_decompressed_bytes: int,
    ) -> None:
        """`aborted` are the transactions whose markers lie at `first_dirty_offset` or above."""
        self._map = offset_map
        self._hashes = hashes
        self._transactions = CleanedTransactions(aborted)
        self._first = first_dirty_offset
        self._end = end_offset
        self._max_decompressed_bytes = max_decompressed_bytes

    def take(self, window: Window) -> Offset | None:
        """Put a window's keys into the map; return the first offset that did not fit.

        Raises:
            CorruptBatchError, KafkaError: a batch is damaged.
        """
        first, end, transactions = self._first, self._end, self._transactions
        wanted: list[int] = []
        for number, (position, header) in enumerate(window.batches):
            if header.last_offset < first or header.base_offset >= end or not header.record_count:
                continue
            if header.is_control:
                marker = read_marker(header, window.data[position : position + header.size_bytes])
                if marker is not None:
                    transactions.end(header, aborted=marker.aborted)
            elif not transactions.is_aborted(header):
                wanted.append(number)
        for _, records in records_in_groups(window, wanted, self._max_decompressed_bytes):
            fields = records.fields
            rows = np.flatnonzero(
                (fields.key_lengths >= 0) & (records.offsets >= first) & (records.offsets < end)
            )
            keys = self._hashes.of(records.data, fields.key_positions[rows], fields.key_lengths[rows])
            taken = self._map.put(*keys, records.offsets[rows])
            if taken < len(rows):
                row = rows[taken]
                base_offset = records.batches[records.batch_of_record[row]].base_offset
                return base_offset if base_offset > first else int(records.offsets[row])
        return None
