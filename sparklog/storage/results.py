"""What `Log` answers."""

from typing import Final, NamedTuple

from sparklog.storage.file_region import FileRegion
from sparklog.types import Offset, TimestampMs

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5


class AppendInfo(NamedTuple):
    """Where an append went. Ends are inclusive only in `last_offset`, as in Kafka."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: TimestampMs | None
    """The time given to the records, where the topic says LogAppendTime; else None (-1 on the wire)."""
    log_start_offset: Offset
    duplicate: bool = False
    """Nothing was appended: an idempotent producer's retry of a batch that is in the log at these offsets."""


class ReadResult(NamedTuple):
    """Whole batches found by `Log.read`."""

    region: FileRegion | None
    """None: nothing to read below the limit (not an error)."""
    next_offset: Offset
    """Reading on from here misses nothing; the offset asked for when `region` is None."""
