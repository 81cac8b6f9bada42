"""The keys of the log cleaner, Kafka's names, types, limits and defaults."""

from dataclasses import dataclass

from sparklog.node.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    LONG_MAX,
    Rule,
    at_least,
    between,
    config_key,
)


@dataclass(frozen=True, kw_only=True)
class CleanerKeys:
    log_cleaner_enable: bool = config_key(BOOLEAN, True, "Whether compacted topics are compacted.")
    log_cleaner_threads: int = config_key(
        INT, 1, "How many logs are cleaned side by side, each by a process of its own.", at_least(0)
    )
    log_cleaner_dedupe_buffer_size: int = config_key(
        LONG, 134217728, "How much memory all cleaner processes together use for the keys, 24 bytes each."
    )
    log_cleaner_io_buffer_load_factor: float = config_key(
        DOUBLE,
        0.9,
        "How full the table of keys may become before another round is made of what is left.",
        Rule("more than 0, at most 1", lambda value: 0 < value <= 1),
    )
    log_cleaner_io_buffer_size: int = config_key(
        INT,
        4194304,
        "How many bytes of log all cleaner processes together read at a time; more than Kafka's default,"
        " because many records are examined in parallel. A larger batch is read whole.",
        at_least(0),
    )
    log_cleaner_io_max_bytes_per_second: float = config_key(
        DOUBLE,
        1.7976931348623157e308,
        "How much all cleaner processes together read and write.",
        Rule("more than 0", lambda value: value > 0),
    )
    log_cleaner_backoff_ms: int = config_key(
        LONG, 15000, "How long the cleaner waits before it looks for dirty logs again.", at_least(0)
    )
    log_cleaner_min_cleanable_ratio: float = config_key(
        DOUBLE, 0.5, "The share of a compacted log that must be new before it is cleaned.", between(0, 1)
    )
    log_cleaner_delete_retention_ms: int = config_key(
        LONG,
        86400000,
        "How long a tombstone stays in a compacted log after a cleaning has met it.",
        at_least(0),
    )
    log_cleaner_min_compaction_lag_ms: int = config_key(
        LONG, 0, "How long a record stays as it is in a compacted log.", at_least(0)
    )
    log_cleaner_max_compaction_lag_ms: int = config_key(
        LONG,
        LONG_MAX,
        "The age at which a record makes its log due for cleaning, however clean the rest is.",
        at_least(1),
    )
