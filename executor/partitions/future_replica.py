"""What is to be a replica's log, in another directory of the broker, when it has everything.

The checkpoints of its directory tell of it, so that a start after a crash need not read it whole; nothing
else works on it but whoever copies (`executor/moving`).
"""

from typing import Final, Protocol

from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import Offset, TopicPartition


class _Replica(Protocol):
    """The replica whose log is copied."""

    topic_partition: TopicPartition
    log: Log

    @property
    def high_watermark(self) -> Offset:
        """Up to where records are known here to be committed."""


class FutureReplica:
    """The copy under way of the log of `replica`."""

    def __init__(self, replica: _Replica, log: Log) -> None:
        self.topic_partition: TopicPartition = replica.topic_partition
        self.log: Final = log
        self.offline = False
        """Its files can no longer be used."""
        self._replica = replica

    @property
    def lag(self) -> int:
        """How many offsets it is behind."""
        return max(0, self._replica.log.log_end_offset - self.log.log_end_offset)

    @property
    def high_watermark(self) -> Offset:
        """Up to where what it has is known to be committed."""
        return min(self._replica.high_watermark, self.log.log_end_offset)
