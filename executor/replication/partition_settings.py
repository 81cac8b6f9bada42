"""What replication needs of a topic's configuration, ready to use on the hot path."""

from dataclasses import dataclass
from typing import Final

from sparklog.config import TopicConfig
from sparklog.records.codecs import Codec
from sparklog.storage.log_config import LogConfig

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

NO_LIMIT_MS: Final = 2**63 - 1
"""Kafka's default of message.timestamp.before.max.ms."""


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """A topic's configuration as its partitions obey it."""

    log: LogConfig
    min_insync_replicas: int
    codec: Codec | None
    """What batches are recompressed to; None keeps the producer's codec (`compression.type=producer`)."""
    codec_level: int | None
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    flush_ms: int | None
    """How long the log may go without a flush; None leaves flushing to the operating system."""

    @property
    def records_inspected(self) -> bool:
        """Whether what a batch's header says is not enough to accept it."""
        return self.log.compacts or self.timestamp_before_max_ms < NO_LIMIT_MS

    @classmethod
    def of(cls, config: TopicConfig) -> "PartitionSettings":
        """Return the settings of a topic."""
        return cls(
            log=config.log_config(),
            min_insync_replicas=config.min_insync_replicas,
            codec=_CODECS[config.compression_type],
            codec_level=config.compression_level,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            flush_ms=config.flush_ms,
        )
