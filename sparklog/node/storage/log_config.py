"""The storage part of a topic's configuration.

Built from the topic configuration by `sparklog.node.config`; the defaults are Kafka's. Limits that Kafka
writes as
-1 ("no limit") are None here.
"""

from dataclasses import dataclass
from typing import Final

_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic configuration keys that the log itself obeys, with `.` written as `_`."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int | None = 7 * _DAY_MS
    retention_bytes: int | None = None
    """Limit for the whole log; None keeps everything."""
    remote_storage_enable: bool = False
    """Whether the log's records are copied to an object store."""
    local_retention_ms: int | None = 7 * _DAY_MS
    """In tiered logs, the age at which records that the store has are deleted here; None keeps everything."""
    local_retention_bytes: int | None = None
    """In tiered logs, the size above which records that the store has are deleted here; None keeps all."""
    remote_copy_disable: bool = False
    """Whether a tiered log is copied no further."""
    remote_delete_on_disable: bool = False
    """Whether the store's copy is deleted when the log becomes one without tier."""
    table_keeps_segments: bool = False
    """Of tiered logs that are tables, or were ones that keep rows: leaders delete none of their segments."""
    table_period_ms: int | None = None
    """Length of a partition of tables by day or hour."""
    table_value_schema: str = ""
    """Schema of a table's typed columns; empty for none."""
    deletes: bool = True
    """Whether `cleanup.policy` contains `delete`."""
    compacts: bool = False
    """Whether `cleanup.policy` contains `compact`."""
    delete_retention_ms: int = _DAY_MS
    """Time for which a tombstone stays after the first cleaning that met it."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    """None: no limit; the log is cleaned when it is dirty enough."""
    max_message_bytes: int = 1024 * 1024 + 12
    file_delete_delay_ms: int = 60_000
    log_append_time: bool = False
    """Whether `message.timestamp.type` is `LogAppendTime`."""
    flush_messages: int | None = None
    """Records above the recovery point that make `Log.flush_due`; None leaves flushing to the kernel."""
    producer_id_expiration_ms: int = _DAY_MS
    transaction_partition_verification: bool = True
    """Whether the first batch of a transaction needs the coordinator's verification (KIP-890)."""

    @property
    def is_cut_by_local_retention(self) -> bool:
        """Whether segments are deleted here because the tier has them.

        Not those of compacted logs, which cleaners and coordinators read from local files, nor those of a log
        that is copied no further: what the tier will never have is kept and deleted with the whole.
        """
        return self.is_copied and not self.compacts

    @property
    def is_copied(self) -> bool:
        """Whether the tier gets each record: until then the record must stay here as it is."""
        return self.remote_storage_enable and not self.remote_copy_disable
