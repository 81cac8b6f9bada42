"""The future log of a replica in another directory of the broker, until it has caught up (KIP-113).

Its directory's checkpoints include it, so that a start after a crash need not read it whole; only the copy
(`executor/log_dir_moves`) writes to it.
"""

from typing import Final, Protocol

from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import Offset, TopicPartition


class _Replica(Protocol):
    topic_partition: TopicPartition
    log: Log

    @property
    def high_watermark(self) -> Offset:
        """The end of the records known here to be committed."""


class FutureReplica:
    """The copy of the log of `replica`, while it is made."""

    def __init__(self, replica: _Replica, log: Log) -> None:
        self.topic_partition: TopicPartition = replica.topic_partition
        self.log: Final = log
        self.offline = False
        """Its files can no longer be used."""
        self._replica = replica

    @property
    def lag(self) -> int:
        """The number of offsets that it is behind."""
        return max(0, self._replica.log.log_end_offset - self.log.log_end_offset)

    @property
    def high_watermark(self) -> Offset:
        """The end of its records known to be committed."""
        return min(self._replica.high_watermark, self.log.log_end_offset)
