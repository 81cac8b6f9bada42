"""The broker keys of logs; most are defaults that a topic may override.

Names, types, limits and defaults are Kafka's. -1 for "no limit" stays -1 here.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import (
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    at_least,
    between,
    config_key,
    either,
    one_of,
    some_of,
)

FLUSH_CHECK_INTERVAL_MS: Final = 1000
"""The interval of flushes by time if log.flush.scheduler.interval.ms is not set."""


@dataclass(frozen=True, kw_only=True)
class LogDefaults:
    message_max_bytes: int = config_key(
        INT, 1048588, "The largest batch of records, compressed.", at_least(0)
    )
    compression_type: str = config_key(
        STRING,
        "producer",
        "How batches are stored: as they come (producer), or recompressed.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = config_key(
        INT, -1, "gzip's level; -1 is its default.", either(-1, between(1, 9))
    )
    compression_lz4_level: int = config_key(INT, 9, "lz4's level.", between(1, 17))
    compression_zstd_level: int = config_key(INT, 3, "zstd's level.", between(-131072, 22))
    log_segment_bytes: int = config_key(INT, 1073741824, "The largest segment file.", at_least(1048576))
    log_roll_ms: int | None = config_key(LONG, None, "The longest a segment stays active.", at_least(1))
    log_roll_hours: int = config_key(INT, 168, "The same in hours; log.roll.ms wins.", at_least(1))
    log_roll_jitter_ms: int | None = config_key(
        LONG, None, "How much earlier, at random, a segment is rolled.", at_least(0)
    )
    log_roll_jitter_hours: int = config_key(
        INT, 0, "The same in hours; log.roll.jitter.ms wins.", at_least(0)
    )
    log_index_size_max_bytes: int = config_key(INT, 10485760, "The largest index file.", at_least(4))
    log_index_interval_bytes: int = config_key(
        INT, 4096, "How many bytes of log lie between two index entries.", at_least(0)
    )
    log_retention_ms: int | None = config_key(
        LONG, None, "How long records are kept; -1 for ever.", either(-1, at_least(1))
    )
    log_retention_minutes: int | None = config_key(
        INT, None, "The same in minutes; log.retention.ms wins.", either(-1, at_least(1))
    )
    log_retention_hours: int = config_key(
        INT, 168, "The same in hours; log.retention.ms and .minutes win.", either(-1, at_least(1))
    )
    log_retention_bytes: int = config_key(LONG, -1, "How large a partition's log may grow; -1 for no limit.")
    log_retention_check_interval_ms: int = config_key(
        LONG, 300000, "How often old segments are looked for.", at_least(1)
    )
    log_cleanup_policy: tuple[str, ...] = config_key(
        LIST,
        ("delete",),
        "How a log is cleaned: old segments are deleted (delete), or records that a later one replaces"
        " (compact).",
        some_of("compact", "delete"),
    )
    log_segment_delete_delay_ms: int = config_key(
        LONG, 60000, "How long a deleted segment's files stay.", at_least(0)
    )
    log_flush_interval_messages: int = config_key(
        LONG,
        LONG_MAX,
        "After how many records a log is flushed, within a second; no append waits for it.",
        at_least(1),
    )
    log_flush_interval_ms: int | None = config_key(
        LONG,
        None,
        "How long a log may go without a flush if there is something to flush;"
        " log.flush.scheduler.interval.ms if not set.",
    )
    log_flush_scheduler_interval_ms: int = config_key(
        LONG,
        LONG_MAX,
        "How often logs are checked for flushes by time; every second if not set.",
        at_least(1),
    )
    log_flush_offset_checkpoint_interval_ms: int = config_key(
        INT, 60000, "How often recovery points go to disk.", at_least(0)
    )
    log_flush_start_offset_checkpoint_interval_ms: int = config_key(
        INT, 60000, "How often log start offsets go to disk.", at_least(0)
    )
    log_message_timestamp_type: str = config_key(
        STRING,
        "CreateTime",
        "Whether records keep their producer's time or get the time of their append.",
        one_of("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = config_key(
        LONG, LONG_MAX, "How far a record's time may lie before the broker's.", at_least(0)
    )
    log_message_timestamp_after_max_ms: int = config_key(
        LONG, 3600000, "How far a record's time may lie after the broker's.", at_least(0)
    )

    @property
    def flush_check_interval_ms(self) -> int:
        interval_ms = self.log_flush_scheduler_interval_ms
        return FLUSH_CHECK_INTERVAL_MS if interval_ms == LONG_MAX else interval_ms
