"""Results of a log's methods."""

from typing import Final, NamedTuple

from sparklog.node.storage.file_region import FileRegion
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TimestampMs, TopicPartition

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5


class OffsetMovedToTierError(KafkaError):
    """A read of a record that local retention has deleted: the tier has it, the local log does not."""

    def __init__(self, partition: TopicPartition, offset: Offset, local_log_start_offset: Offset) -> None:
        super().__init__(
            ErrorCode.offset_moved_to_tiered_storage,
            f"{partition}: offset {offset} is in the tier, the local log starts at {local_log_start_offset}",
        )
        self.local_log_start_offset = local_log_start_offset


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
