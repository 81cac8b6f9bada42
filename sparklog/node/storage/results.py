"""Results of a log's methods."""

from typing import Final, NamedTuple

from sparklog.node.storage.file_region import FileRegion
from sparklog.protocol.types import Offset, TimestampMs

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5


class AppendInfo(NamedTuple):
    """Offsets of an append. `last_offset` is inclusive, as in Kafka."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: TimestampMs | None
    """Timestamp of the records under LogAppendTime; else None (-1 on the wire)."""
    log_start_offset: Offset
    duplicate: bool = False
    """Nothing was appended: an idempotent producer retried a batch that is in the log at these offsets."""


class ReadResult(NamedTuple):
    region: FileRegion | None
    """None: there is nothing to read below the limit (not an error)."""
    next_offset: Offset
    """Offset from which to continue; the requested one if `region` is None."""
