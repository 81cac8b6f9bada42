"""The keys of the log cleaner, Kafka's names, types, limits and defaults."""

from dataclasses import dataclass

from sparklog.node.config.definition import Rule
from sparklog.node.config.key_table import broker_key


@dataclass(frozen=True, kw_only=True)
class CleanerKeys:
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
