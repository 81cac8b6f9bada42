"""The broker keys of logs and their cleaner; most are defaults that a topic may override.

Names, types, limits and defaults are Kafka's. -1 for "no limit" stays -1 here.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import LONG_MAX, Rule
from sparklog.node.config.key_table import broker_key

FLUSH_CHECK_INTERVAL_MS: Final = 1000
"""The interval of flushes by time if log.flush.scheduler.interval.ms is not set."""


@dataclass(frozen=True, kw_only=True)
class LogDefaults:
    log_cleaner_enable: bool = broker_key("log.cleaner.enable")
    log_cleaner_threads: int = broker_key("log.cleaner.threads")
    log_cleaner_dedupe_buffer_size: int = broker_key("log.cleaner.dedupe.buffer.size")
    log_cleaner_io_buffer_load_factor: float = broker_key(
        "log.cleaner.io.buffer.load.factor", Rule("more than 0, at most 1", lambda value: 0 < value <= 1)
    )
    log_cleaner_io_buffer_size: int = broker_key("log.cleaner.io.buffer.size")
    log_cleaner_io_max_bytes_per_second: float = broker_key(
        "log.cleaner.io.max.bytes.per.second", Rule("more than 0", lambda value: value > 0)
    )
    log_cleaner_backoff_ms: int = broker_key("log.cleaner.backoff.ms")
    log_cleaner_min_cleanable_ratio: float = broker_key("log.cleaner.min.cleanable.ratio")
    log_cleaner_delete_retention_ms: int = broker_key("log.cleaner.delete.retention.ms")
    log_cleaner_min_compaction_lag_ms: int = broker_key("log.cleaner.min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = broker_key("log.cleaner.max.compaction.lag.ms")

    message_max_bytes: int = broker_key("message.max.bytes")
    compression_type: str = broker_key("compression.type")
    compression_gzip_level: int = broker_key("compression.gzip.level")
    compression_lz4_level: int = broker_key("compression.lz4.level")
    compression_zstd_level: int = broker_key("compression.zstd.level")
    log_segment_bytes: int = broker_key("log.segment.bytes")
    log_roll_ms: int | None = broker_key("log.roll.ms")
    log_roll_hours: int = broker_key("log.roll.hours")
    log_roll_jitter_ms: int | None = broker_key("log.roll.jitter.ms")
    log_roll_jitter_hours: int = broker_key("log.roll.jitter.hours")
    log_index_size_max_bytes: int = broker_key("log.index.size.max.bytes")
    log_index_interval_bytes: int = broker_key("log.index.interval.bytes")
    log_retention_ms: int | None = broker_key("log.retention.ms")
    log_retention_minutes: int | None = broker_key("log.retention.minutes")
    log_retention_hours: int = broker_key("log.retention.hours")
    log_retention_bytes: int = broker_key("log.retention.bytes")
    log_retention_check_interval_ms: int = broker_key("log.retention.check.interval.ms")
    log_cleanup_policy: tuple[str, ...] = broker_key("log.cleanup.policy")
    log_segment_delete_delay_ms: int = broker_key("log.segment.delete.delay.ms")
    log_flush_interval_messages: int = broker_key("log.flush.interval.messages")
    log_flush_interval_ms: int | None = broker_key("log.flush.interval.ms")
    log_flush_scheduler_interval_ms: int = broker_key("log.flush.scheduler.interval.ms")
    log_flush_offset_checkpoint_interval_ms: int = broker_key("log.flush.offset.checkpoint.interval.ms")
    log_flush_start_offset_checkpoint_interval_ms: int = broker_key(
        "log.flush.start.offset.checkpoint.interval.ms"
    )
    log_message_timestamp_type: str = broker_key("log.message.timestamp.type")
    log_message_timestamp_before_max_ms: int = broker_key("log.message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = broker_key("log.message.timestamp.after.max.ms")

    @property
    def flush_check_interval_ms(self) -> int:
        interval_ms = self.log_flush_scheduler_interval_ms
        return FLUSH_CHECK_INTERVAL_MS if interval_ms == LONG_MAX else interval_ms
