"""Metrics of a broker's partitions, fetchers and metadata.

Source: Kafka's ReplicaManager, BrokerTopicStats, DelayedOperationPurgatory, FetchSessionCache,
AbstractFetcherManager, KafkaRaftMetrics, BrokerServerMetrics, KafkaServer.
"""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric, gauge, meter


def _replicas(name: str, kind: Kind, meaning: str) -> Metric:
    return Metric("kafka.server", "ReplicaManager", name, kind, meaning)


def _topics(name: str, meaning: str, tags: tuple[str, ...] = ("topic",)) -> Metric:
    return Metric("kafka.server", "BrokerTopicMetrics", name, Kind.METER, meaning, tags)


def _read_from(name: str, meaning: str) -> Metric:
    return Metric("sparklog", "ConsumerDistance", name, Kind.METER, meaning, ())


def _leaders(name: str, meaning: str) -> Metric:
    meaning += " Means of the last whole five minutes, of all and of the partitions with the most."
    return Metric("sparklog", "LeaderTraffic", name, Kind.GAUGE, meaning, ("partition", "topic"))


def _raft(attribute: str, meaning: str) -> Metric:
    return Metric("kafka.server", "raft-metrics", None, Kind.GAUGE, meaning, (), attribute)


def _metadata(attribute: str, meaning: str) -> Metric:
    return Metric("kafka.server", "broker-metadata-metrics", None, Kind.GAUGE, meaning, (), attribute)


LEADER_COUNT: Final = _replicas("LeaderCount", Kind.GAUGE, "Partitions led.")
PARTITION_COUNT: Final = _replicas("PartitionCount", Kind.GAUGE, "Partitions held.")
OFFLINE_REPLICA_COUNT: Final = _replicas(
    "OfflineReplicaCount", Kind.GAUGE, "Replicas that are offline after an I/O error."
)
UNDER_REPLICATED: Final = _replicas(
    "UnderReplicatedPartitions", Kind.GAUGE, "Partitions led with replicas that are not in sync."
)
UNDER_MIN_ISR: Final = _replicas(
    "UnderMinIsrPartitionCount",
    Kind.GAUGE,
    "Partitions led with fewer than min.insync.replicas in sync: acks=all is refused.",
)
AT_MIN_ISR: Final = _replicas(
    "AtMinIsrPartitionCount", Kind.GAUGE, "Partitions led with just min.insync.replicas in sync."
)
REASSIGNING: Final = _replicas(
    "ReassigningPartitions", Kind.GAUGE, "Partitions led that are being moved to other brokers."
)
ISR_SHRINKS: Final = _replicas("IsrShrinksPerSec", Kind.METER, "Replicas taken out of an ISR by its leader.")
ISR_EXPANDS: Final = _replicas("IsrExpandsPerSec", Kind.METER, "Replicas taken into an ISR by its leader.")
FAILED_ISR_UPDATES: Final = _replicas(
    "FailedIsrUpdatesPerSec", Kind.METER, "ISR proposals that the controller refused."
)

MESSAGES_IN: Final = _topics("MessagesInPerSec", "Records appended by clients.")
BYTES_IN: Final = _topics("BytesInPerSec", "Bytes appended by clients.")
BYTES_OUT: Final = _topics("BytesOutPerSec", "Bytes sent to consumers.")
BYTES_REJECTED: Final = _topics("BytesRejectedPerSec", "Bytes refused, being more than max.message.bytes.")
PRODUCE_REQUESTS: Final = _topics("TotalProduceRequestsPerSec", "Partitions written to by requests.")
FETCH_REQUESTS: Final = _topics("TotalFetchRequestsPerSec", "Partitions read from by requests.")
FAILED_PRODUCE_REQUESTS: Final = _topics(
    "FailedProduceRequestsPerSec",
    "Partitions of Produce requests that failed for an unexpected reason, or with too few replicas in sync.",
)
FAILED_FETCH_REQUESTS: Final = _topics(
    "FailedFetchRequestsPerSec", "Partitions of Fetch requests that failed for an unexpected reason."
)
INVALID_MAGIC: Final = _topics(
    "InvalidMagicNumberRecordsPerSec", "Batches refused for their format's number.", ()
)
INVALID_CRC: Final = _topics(
    "InvalidMessageCrcRecordsPerSec", "Batches refused for their checksum, or as malformed.", ()
)
INVALID_SEQUENCE: Final = _topics(
    "InvalidOffsetOrSequenceRecordsPerSec", "Batches refused for the sequence numbers of their producer.", ()
)
REPLICATION_BYTES_IN: Final = _topics("ReplicationBytesInPerSec", "Bytes fetched from leaders.", ())
REPLICATION_BYTES_OUT: Final = _topics("ReplicationBytesOutPerSec", "Bytes sent to followers.", ())

LEADER_BYTES_IN: Final = _leaders("BytesInPerSec", "Bytes per second that clients wrote to leaders.")
LEADER_BYTES_OUT: Final = _leaders("BytesOutPerSec", "Bytes per second that consumers read from leaders.")

BYTES_OUT_SAME_HOST: Final = _read_from("SameHostBytesOutPerSec", "Bytes sent to consumers on this host.")
BYTES_OUT_SAME_RACK: Final = _read_from(
    "SameRackBytesOutPerSec", "Bytes sent to consumers on other hosts that name this broker's rack."
)
BYTES_OUT_ELSEWHERE: Final = _read_from("ElsewhereBytesOutPerSec", "Bytes sent to all other consumers.")

PURGATORY_SIZE: Final = gauge(
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
    "Requests that wait: for followers, for records, for replicas to delete.",
)
FETCH_SESSIONS: Final = gauge(
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions", "Incremental fetch sessions."
)
MAX_LAG: Final = gauge(
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
    "The most records that a partition fetched by this broker is behind its leader's high watermark.",
    ("clientId",),
)
FAILED_PARTITIONS: Final = gauge(
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount",
    "Partitions whose fetching has stopped because data from the leader was rejected.",
    ("clientId",),
)
ALTER_LOG_DIRS_MAX_LAG: Final = gauge(
    "kafka.server:type=ReplicaAlterLogDirsManager,name=MaxLag",
    "The most records that a copy lags, of the replicas that move to another directory of their broker.",
    ("clientId",),
)
FETCHER_BYTES: Final = meter(
    "kafka.server:type=FetcherStats,name=BytesPerSec",
    "Bytes fetched from one leader.",
    ("brokerHost", "brokerPort", "clientId"),
)
FETCHER_REQUESTS: Final = meter(
    "kafka.server:type=FetcherStats,name=RequestsPerSec",
    "Fetches answered by one leader.",
    ("brokerHost", "brokerPort", "clientId"),
)

RAFT_EPOCH: Final = _raft("current-epoch", "The leader epoch of the metadata log.")
RAFT_LEADER: Final = _raft("current-leader", "The node id of the controller; -1 while none is known.")
RAFT_HIGH_WATERMARK: Final = _raft("high-watermark", "The high watermark of the metadata log.")
RAFT_LOG_END_OFFSET: Final = _raft("log-end-offset", "The end of this node's metadata log.")
RAFT_VOTERS: Final = _raft("number-of-voters", "Voters of the metadata log.")
APPLIED_OFFSET: Final = _metadata("last-applied-record-offset", "The last metadata record applied.")

BROKER_STATE: Final = gauge(
    "kafka.server:type=KafkaServer,name=BrokerState",
    "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
)
START_TIME: Final = gauge(
    "kafka.server:type=app-info start-time-ms", "When the broker's process began, in milliseconds since 1970."
)
CLIENT_INSTANCES: Final = gauge(
    "kafka.server:type=client-metrics instance-count", "Clients that push telemetry to this node."
)
