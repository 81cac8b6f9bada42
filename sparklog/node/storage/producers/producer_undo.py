"""The producers of a log that loses its last few batches, from memory and the headers next to the cut.

At nearly every change of a leader a follower has some batches that the new leader has not. To load the
producers again from the last snapshot takes 6 us a batch of the segment (`producer_loading`): seconds for
a hundred thousand small batches. The follower would not fetch meanwhile, and as a member of the ISR it would
hold up every write with acks=all. So the last batches are taken back instead. Only headers in the page cache
are read, few enough for the event loop; where they do not suffice the producers are loaded as before.

Kafka loads them again (ProducerStateManager.truncateAndReload), in far less time a batch.
"""

from itertools import islice
from typing import Final

from sparklog.node.storage.file_region import NotCachedError
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.segments.batch_walk import header_at, walk_headers
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.records.batch import BatchHeader, CorruptBatchError
from sparklog.protocol.types import Offset

MOST_BATCHES: Final = 256
"""The most batches that are taken back: about a millisecond, and as much for those before them."""
_ENTRIES_BEFORE: Final = 16
"""Distance in index entries: each stands for index.interval.bytes of log, or for one larger batch."""


def take_back(producers: ProducerStates, segment: Segment, offset: Offset) -> bool:
    """Return `producers` to their state at `offset`, at which the log's last segment is about to be cut.

    Returns False, and changes nothing, if that state is not known.
    """
    if offset < segment.base_offset:
        return False
    try:
        position = segment.position_of(offset, cached_only=True)
        walk = walk_headers(segment.file, position, segment.size_bytes, cached_only=True)
        removed = [header for _, header in islice(walk, MOST_BATCHES + 1)]
        if len(removed) > MOST_BATCHES:
            return False
        return producers.take_back(removed, _before(segment, position))
    except (NotCachedError, CorruptBatchError, OSError):
        return False


def _before(segment: Segment, position: int) -> list[BatchHeader]:
    """Return the headers of the last batches before that of a position."""
    start = position
    for _ in range(_ENTRIES_BEFORE):
        if start == 0:
            break
        first = header_at(segment.file, start, segment.size_bytes, cached_only=True)
        start = segment.scan_start(first.base_offset - 1, cached_only=True)
    return [header for _, header in walk_headers(segment.file, start, position, cached_only=True)]
