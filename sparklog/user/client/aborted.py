"""Filter of aborted transactions' batches, for readers of committed records.

A fetch under read_committed ends below the last stable offset, so every transaction in it has ended; the
leader lists the aborted ones by producer and first offset. From there to the producer's next abort marker its
transactional batches are hidden (KIP-98).
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import AbortedTransaction

_ABORT: Final = 0
"""Type in a transaction marker's key, behind two bytes of version."""


def without_aborted(records: bytes | memoryview, aborted: Iterable[AbortedTransaction]) -> bytes | memoryview:
    """Return `records` without the batches of aborted transactions; a partial last batch is dropped.

    `records` starts where the fetch started, as `aborted` does.
    """
    view = memoryview(records)
    kept = list(_kept(view, aborted))
    return kept[0] if len(kept) == 1 else b"".join(kept)


def _kept(view: memoryview, aborted: Iterable[AbortedTransaction]) -> Iterator[memoryview]:
    """Yield the longest ranges of visible batches."""
    upcoming = [(each.first_offset, each.producer_id) for each in aborted]
    heapq.heapify(upcoming)
    aborting: set[int] = set()
    start = end = 0
    for position, header in iterate_headers(view):
        while upcoming and upcoming[0][0] <= header.last_offset:
            aborting.add(heapq.heappop(upcoming)[1])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(view, position, header):
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            if start < position:
                yield view[start:position]
            start = position + header.size_bytes
        end = position + header.size_bytes
    if start < end:
        yield view[start:end]


def _is_abort(view: memoryview, position: int, header: BatchHeader) -> bool:
    marker = next(iter(read_records(view, header, position)))
    return marker.key is not None and int.from_bytes(marker.key[2:4], "big") == _ABORT
