"""The topic configuration that partitions need, parsed for the hot path."""

from dataclasses import dataclass
from typing import Final

from sparklog.executor.records.examination import Demands
from sparklog.executor.records.walk import RecordLimits
from sparklog.node.config import BrokerConfig, TopicConfig, checked_topic_config, topic_config
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.config.throttled_replicas import ThrottledReplicas
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import BrokerId, TimestampMs

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

LATEST_READABLE_MS: Final = (2**63 - 1) // 1000
"""The largest of Spark's timestamps, which count microseconds; its negative is the smallest."""


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    log: LogConfig
    min_insync_replicas: int
    codec: Codec | None
    """The codec of stored batches; None keeps the producer's codec (`compression.type=producer`)."""
    codec_level: int | None
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    flush_ms: int | None
    """How long the log may go without a flush; None leaves flushing to the operating system."""

    leader_throttled: ThrottledReplicas
    follower_throttled: ThrottledReplicas

    def demands(self, wall_ms: TimestampMs, max_decompressed_bytes: int) -> Demands:
        """Return the demands on the records of a batch that arrived at `wall_ms`."""
        log = self.log
        earliest_ms = latest_ms = None
        if not log.log_append_time:
            earliest_ms = max(wall_ms - self.timestamp_before_max_ms, -LATEST_READABLE_MS)
            latest_ms = min(wall_ms + self.timestamp_after_max_ms, LATEST_READABLE_MS)
        return Demands(
            max_decompressed_bytes,
            log.max_message_bytes,
            RecordLimits(log.compacts, earliest_ms, latest_ms),
            codec=self.codec,
            codec_level=self.codec_level,
        )

    @classmethod
    def of(cls, config: TopicConfig) -> "PartitionSettings":
        log = config.log_config()
        codec = _CODECS[config.compression_type]
        return cls(
            log=log,
            min_insync_replicas=config.min_insync_replicas,
            codec=codec,
            codec_level=config.compression_level,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            flush_ms=config.flush_ms,
            leader_throttled=ThrottledReplicas.of(config.leader_replication_throttled_replicas),
            follower_throttled=ThrottledReplicas.of(config.follower_replication_throttled_replicas),
        )


class TopicSettings:
    """The settings of topics by name, made once; most topics have the broker's defaults."""

    def __init__(self, config: BrokerConfig) -> None:
        """Begin with the configuration at the broker's start."""
        self.defaults = PartitionSettings.of(checked_topic_config(config, {}))
        self._started_with: Final = config
        self.config = config
        """The broker's, with its dynamic values."""
        self._own: dict[str, PartitionSettings] = {}
        """Settings of the topics with a configuration of their own."""

    def of(self, image: MetadataImage, topic: str) -> PartitionSettings:
        """Return the settings of a topic; the caller forgets a changed topic first."""
        own = image.topic_configs(topic)
        if not own:
            return self.defaults
        settings = self._own.get(topic)
        if settings is None:
            settings = self._own[topic] = PartitionSettings.of(topic_config(self.config, own))
        return settings

    def reconfigure(self, image: MetadataImage, broker_id: BrokerId) -> None:
        """Apply the broker's dynamic configuration; all topics may change."""
        dynamic_defaults, dynamic = image.broker_configs(None), image.broker_configs(broker_id)
        self.config = with_dynamic(self._started_with, dynamic_defaults, dynamic)
        self.defaults = PartitionSettings.of(topic_config(self.config, {}))
        self._own.clear()

    def forget(self, topic: str) -> None:
        self._own.pop(topic, None)
