"""The batches that readers of committed records see, of records below the last stable offset.

Every transaction there has ended; the aborted ones are known by producer and first offset. From there to the
producer's next abort marker its transactional batches are hidden (KIP-98).
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import AbortedTransaction

_ABORT: Final = 0
"""Type in a transaction marker's key, behind two bytes of version."""


class AbortedBatches:
    """The filter of one reader, which gives it consecutive ranges of a log.

    `aborted` are the transactions that overlap what is read, from its first offset on.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming: Final = [(each.first_offset, each.producer_id) for each in aborted]
        heapq.heapify(self._upcoming)
        self._aborting: Final[set[int]] = set()

    def visible(self, records: bytes | memoryview) -> Iterator[memoryview]:
        """Yield the longest ranges of `records` without aborted batches; a partial last batch is left out."""
        view = memoryview(records)
        start = end = 0
        for position, header in iterate_headers(view):
            if self._is_hidden(view, position, header):
                if start < position:
                    yield view[start:position]
                start = position + header.size_bytes
            end = position + header.size_bytes
        if start < end:
            yield view[start:end]

    def _is_hidden(self, view: memoryview, position: int, header: BatchHeader) -> bool:
        upcoming, aborting = self._upcoming, self._aborting
        while upcoming and upcoming[0][0] <= header.last_offset:
            aborting.add(heapq.heappop(upcoming)[1])
        if not header.is_control:
            return header.is_transactional and header.producer_id in aborting
        if header.producer_id in aborting and _is_abort(view, position, header):
            aborting.discard(header.producer_id)
        return False


def _is_abort(view: memoryview, position: int, header: BatchHeader) -> bool:
    marker = next(iter(read_records(view, header, position)))
    return marker.key is not None and int.from_bytes(marker.key[2:4], "big") == _ABORT
