"""Metrics of logs and their directories. Source: Kafka's LogFlushStats, LogManager,
LogCleanerManager and UnifiedLog."""

from typing import Final

from sparklog.node.metrics.names import gauge, histogram

_PARTITION: Final = ("partition", "topic")
_DIRECTORY: Final = ("logDirectory",)

LOG_FLUSH_TIME: Final = histogram(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", "Time that flushes of logs took."
)
OFFLINE_DIRECTORIES: Final = gauge(
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "Log directories that have failed."
)
DIRECTORY_OFFLINE: Final = gauge(
    "kafka.log:type=LogManager,name=LogDirectoryOffline",
    "1 if the directory has failed, otherwise 0.",
    _DIRECTORY,
)
LOG_SIZE: Final = gauge("kafka.log:type=Log,name=Size", "Bytes of a partition's log.", _PARTITION)
LOG_SEGMENTS: Final = gauge(
    "kafka.log:type=Log,name=NumLogSegments", "Segments of a partition's log.", _PARTITION
)
LOG_START_OFFSET: Final = gauge(
    "kafka.log:type=Log,name=LogStartOffset", "The first readable offset.", _PARTITION
)
LOG_END_OFFSET: Final = gauge(
    "kafka.log:type=Log,name=LogEndOffset", "The offset of the next record.", _PARTITION
)
UNCLEANABLE_PARTITIONS: Final = gauge(
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
    "Compacted logs in the directory that could not be cleaned; the broker's log says why.",
    _DIRECTORY,
)
MAX_DIRTY_PERCENT: Final = gauge(
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent",
    "The share of the dirtiest compacted log that has not been cleaned yet.",
)
CLEANER_LAST_RUN: Final = gauge(
    "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms",
    "The time since the cleaner last looked for dirty logs.",
)
DIRECTORY_FREE: Final = gauge(
    "sparklog:type=LogDirectory,name=FreeBytes",
    "Free bytes of the file system that the directory lies in.",
    _DIRECTORY,
)
DIRECTORY_FILE_SYSTEM: Final = gauge(
    "sparklog:type=LogDirectory,name=FileSystemId",
    "A number that directories have in common if they lie in one file system.",
    _DIRECTORY,
)
DIRECTORY_LOGS: Final = gauge(
    "sparklog:type=LogDirectory,name=LogBytes",
    "Bytes of all partitions' logs in the directory, counted every five seconds.",
    _DIRECTORY,
)
