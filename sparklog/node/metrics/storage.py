"""Metrics of logs and their directories. Source: Kafka's LogFlushStats, LogManager,
LogCleanerManager and UnifiedLog."""

from typing import Final

from sparklog.node.metrics.names import Kind, metric

_PARTITION: Final = ("partition", "topic")
_DIRECTORY: Final = ("logDirectory",)

LOG_FLUSH_TIME: Final = metric(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    Kind.HISTOGRAM,
    "Time that flushes of logs took.",
)
OFFLINE_DIRECTORIES: Final = metric(
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", Kind.GAUGE, "Log directories that have failed."
)
DIRECTORY_OFFLINE: Final = metric(
    "kafka.log:type=LogManager,name=LogDirectoryOffline",
    Kind.GAUGE,
    "1 if the directory has failed, otherwise 0.",
    _DIRECTORY,
)
LOG_SIZE: Final = metric(
    "kafka.log:type=Log,name=Size", Kind.GAUGE, "Bytes of a partition's log.", _PARTITION
)
LOG_SEGMENTS: Final = metric(
    "kafka.log:type=Log,name=NumLogSegments", Kind.GAUGE, "Segments of a partition's log.", _PARTITION
)
LOG_START_OFFSET: Final = metric(
    "kafka.log:type=Log,name=LogStartOffset", Kind.GAUGE, "The first readable offset.", _PARTITION
)
LOG_END_OFFSET: Final = metric(
    "kafka.log:type=Log,name=LogEndOffset", Kind.GAUGE, "The offset of the next record.", _PARTITION
)
UNCLEANABLE_PARTITIONS: Final = metric(
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
    Kind.GAUGE,
    "Compacted logs in the directory that could not be cleaned; the broker's log says why.",
    _DIRECTORY,
)
MAX_DIRTY_PERCENT: Final = metric(
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent",
    Kind.GAUGE,
    "The share of the dirtiest compacted log that has not been cleaned yet.",
)
CLEANER_LAST_RUN: Final = metric(
    "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms",
    Kind.GAUGE,
    "The time since the cleaner last looked for dirty logs.",
)
DIRECTORY_FREE: Final = metric(
    "sparklog:type=LogDirectory,name=FreeBytes",
    Kind.GAUGE,
    "Free bytes of the file system that the directory lies in.",
    _DIRECTORY,
)
DIRECTORY_FILE_SYSTEM: Final = metric(
    "sparklog:type=LogDirectory,name=FileSystemId",
    Kind.GAUGE,
    "A number that directories have in common if they lie in one file system.",
    _DIRECTORY,
)
DIRECTORY_LOGS: Final = metric(
    "sparklog:type=LogDirectory,name=LogBytes",
    Kind.GAUGE,
    "Bytes of all partitions' logs in the directory, counted every five seconds.",
    _DIRECTORY,
)
