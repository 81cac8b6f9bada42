"""Metrics of logs and their directories. Source: Kafka's LogFlushStats, LogManager,
LogCleanerManager and UnifiedLog."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric

_PARTITION: Final = ("partition", "topic")
_DIRECTORY: Final = ("logDirectory",)

LOG_FLUSH_TIME: Final = Metric(
    "kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", Kind.HISTOGRAM, "Time that flushes of logs took."
)
OFFLINE_DIRECTORIES: Final = Metric(
    "kafka.log", "LogManager", "OfflineLogDirectoryCount", Kind.GAUGE, "Log directories that have failed."
)
DIRECTORY_OFFLINE: Final = Metric(
    "kafka.log",
    "LogManager",
    "LogDirectoryOffline",
    Kind.GAUGE,
    "1 if the directory has failed, otherwise 0.",
    _DIRECTORY,
)
LOG_SIZE: Final = Metric("kafka.log", "Log", "Size", Kind.GAUGE, "Bytes of a partition's log.", _PARTITION)
LOG_SEGMENTS: Final = Metric(
    "kafka.log", "Log", "NumLogSegments", Kind.GAUGE, "Segments of a partition's log.", _PARTITION
)
LOG_START_OFFSET: Final = Metric(
    "kafka.log", "Log", "LogStartOffset", Kind.GAUGE, "The first readable offset.", _PARTITION
)
LOG_END_OFFSET: Final = Metric(
    "kafka.log", "Log", "LogEndOffset", Kind.GAUGE, "The offset of the next record.", _PARTITION
)
UNCLEANABLE_PARTITIONS: Final = Metric(
    "kafka.log",
    "LogCleanerManager",
    "uncleanable-partitions-count",
    Kind.GAUGE,
    "Compacted logs in the directory that could not be cleaned; the broker's log says why.",
    _DIRECTORY,
)
MAX_DIRTY_PERCENT: Final = Metric(
    "kafka.log",
    "LogCleanerManager",
    "max-dirty-percent",
    Kind.GAUGE,
    "The share of the dirtiest compacted log that has not been cleaned yet.",
)
CLEANER_LAST_RUN: Final = Metric(
    "kafka.log",
    "LogCleanerManager",
    "time-since-last-run-ms",
    Kind.GAUGE,
    "The time since the cleaner last looked for dirty logs.",
)
DIRECTORY_FREE: Final = Metric(
    "sparklog",
    "LogDirectory",
    "FreeBytes",
    Kind.GAUGE,
    "Free bytes of the file system that the directory lies in.",
    _DIRECTORY,
)
DIRECTORY_LOGS: Final = Metric(
    "sparklog",
    "LogDirectory",
    "LogBytes",
    Kind.GAUGE,
    "Bytes of all partitions' logs in the directory, counted every five seconds.",
    _DIRECTORY,
)

METRICS: Final = (
    LOG_FLUSH_TIME,
    OFFLINE_DIRECTORIES,
    DIRECTORY_OFFLINE,
    LOG_SIZE,
    LOG_SEGMENTS,
    LOG_START_OFFSET,
    LOG_END_OFFSET,
    UNCLEANABLE_PARTITIONS,
    MAX_DIRTY_PERCENT,
    CLEANER_LAST_RUN,
    DIRECTORY_FREE,
    DIRECTORY_LOGS,
)
