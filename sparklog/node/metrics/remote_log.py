"""Metrics of the tier in an object store. Source: Kafka's RemoteStorageMetrics.

Metrics of topics exist for the topics that are shown of `BrokerTopicMetrics`, and without a topic for all.
"""

from enum import StrEnum
from typing import Final

from sparklog.node.metrics.names import Kind, Metric, gauge, histogram, meter

_TOPIC: Final = ("topic",)


def _meter(name: str, meaning: str) -> Metric:
    return Metric("kafka.server", "BrokerTopicMetrics", name, Kind.METER, meaning, _TOPIC)


def _gauge(name: str, meaning: str) -> Metric:
    return Metric("kafka.server", "BrokerTopicMetrics", name, Kind.GAUGE, meaning, _TOPIC)


COPY_BYTES: Final = _meter("RemoteCopyBytesPerSec", "Bytes of objects written to the store.")
COPY_REQUESTS: Final = _meter("RemoteCopyRequestsPerSec", "Pieces of logs whose copy was begun.")
COPY_ERRORS: Final = _meter("RemoteCopyErrorsPerSec", "Copies that failed; they are tried again.")
FETCH_BYTES: Final = _meter("RemoteFetchBytesPerSec", "Bytes of records fetched from the tier.")
FETCH_REQUESTS: Final = _meter("RemoteFetchRequestsPerSec", "Reads of the tier for fetch requests.")
FETCH_ERRORS: Final = _meter("RemoteFetchErrorsPerSec", "Reads of the tier that failed.")
DELETE_REQUESTS: Final = _meter("RemoteDeleteRequestsPerSec", "Objects whose deletion was begun.")
DELETE_ERRORS: Final = _meter("RemoteDeleteErrorsPerSec", "Deletions that failed; they are tried again.")
BUILD_AUX_STATE_REQUESTS: Final = _meter(
    "BuildRemoteLogAuxStateRequestsPerSec", "Followers' logs that were begun at the tier's end."
)
BUILD_AUX_STATE_ERRORS: Final = _meter(
    "BuildRemoteLogAuxStateErrorsPerSec", "Attempts to begin a follower's log at the tier's end that failed."
)
COPY_LAG_BYTES: Final = _gauge("RemoteCopyLagBytes", "Bytes of led logs that are not in the tier yet.")
COPY_LAG_SEGMENTS: Final = _gauge(
    "RemoteCopyLagSegments", "Closed segments of led logs that are not in the tier yet."
)
DELETE_LAG_SEGMENTS: Final = _gauge(
    "RemoteDeleteLagSegments", "Objects that retention has given up and that are not deleted yet."
)
METADATA_COUNT: Final = _gauge("RemoteLogMetadataCount", "Objects that manifests of led partitions name.")
LOG_SIZE_COMPUTATION_TIME: Final = _gauge(
    "RemoteLogSizeComputationTime", "Milliseconds that the sum of all led partitions' sizes took last."
)
LOG_SIZE_BYTES: Final = _gauge(
    "RemoteLogSizeBytes", "Bytes of the objects that manifests of led partitions name."
)
TASKS_IDLE: Final = gauge(
    "kafka.log.remote:type=RemoteLogManager,name=RemoteLogManagerTasksAvgIdlePercent",
    "The idle share of the threads that copy, from 0 to 1.",
)
READER_QUEUE: Final = gauge(
    "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name=RemoteLogReaderTaskQueueSize",
    "Reads of the tier that wait for a thread.",
)
READER_IDLE: Final = gauge(
    "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name=RemoteLogReaderAvgIdlePercent",
    "The idle share of the threads that read the tier, from 0 to 1.",
)
READER_TIME: Final = histogram(
    "kafka.log.remote:type=RemoteLogManager,name=RemoteLogReaderFetchRateAndTimeMs",
    "How long it took to read a row group of the tier and to make batches of it.",
)
AWAITING_MANIFEST: Final = gauge(
    "sparklog:type=RemoteLogManager,name=PartitionsAwaitingManifest",
    "Led partitions whose manifest is not read yet: nothing is copied, and logs that may lack records "
    "serve nothing.",
)
COPY_LAG_TIME: Final = gauge(
    "sparklog:type=RemoteLogManager,name=CopyLagMs",
    "How long the oldest record of the led logs has been outside the tier.",
    _TOPIC,
)
TIER_ERROR: Final = gauge(
    "sparklog:type=RemoteLogManager,name=ErrorMs",
    "How long the tier of a partition has stood still; the label has the error. At most five a broker.",
    ("error", "kind", "partition", "topic"),
)
LOCAL_LOG_BYTES: Final = gauge(
    "sparklog:type=RemoteLogManager,name=LocalLogBytes", "Bytes of led tiered logs on disks.", _TOPIC
)
UNPARSED_VALUES: Final = meter(
    "sparklog:type=RemoteLogManager,name=UnparsedValuesPerSec",
    "Values copied without typed columns, since they do not parse by sparklog.table.value.schema.",
    _TOPIC,
)
COPY_LAG_RECORDS: Final = gauge(
    "sparklog:type=RemoteLogManager,name=CopyLagRecords",
    "Offsets of led logs that are not in the tier yet.",
    _TOPIC,
)


class TierErrorKind(StrEnum):
    """The label `kind` of `TIER_ERROR`: what an operator can do depends on it."""

    REFUSED = "refused"
    """By the store: credentials, permissions, a bucket that is not there."""
    UNAVAILABLE = "unavailable"
    """The store does not answer, or not in time."""
    REPLACED = "replaced"
    """Another application, or a later leader, has taken over."""
    LOCAL = "local"
    """This broker's own files."""
    OTHER = "other"
