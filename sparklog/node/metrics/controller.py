"""Metrics of the controller. Source: Kafka's ControllerMetadataMetrics and QuorumControllerMetrics."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric, histogram


def _controller(name: str, meaning: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric("kafka.controller", "KafkaController", name, kind, meaning)


ACTIVE_CONTROLLERS: Final = _controller("ActiveControllerCount", "1 on the node that leads, otherwise 0.")
ACTIVE_BROKERS: Final = _controller("ActiveBrokerCount", "Brokers that are registered and not fenced.")
FENCED_BROKERS: Final = _controller("FencedBrokerCount", "Brokers that are registered and fenced.")
GLOBAL_TOPICS: Final = _controller("GlobalTopicCount", "Topics of the cluster.")
GLOBAL_PARTITIONS: Final = _controller("GlobalPartitionCount", "Partitions of the cluster.")
OFFLINE_PARTITIONS: Final = _controller("OfflinePartitionsCount", "Partitions without a leader.")
PREFERRED_REPLICA_IMBALANCE: Final = _controller(
    "PreferredReplicaImbalanceCount", "Partitions whose leader is not the first of their replicas."
)
METADATA_ERRORS: Final = _controller(
    "MetadataErrorCount", "Failures to load, write or apply the metadata, or to write a snapshot of it."
)
LAST_APPLIED_OFFSET: Final = _controller("LastAppliedRecordOffset", "The last metadata record applied.")
LAST_COMMITTED_OFFSET: Final = _controller(
    "LastCommittedRecordOffset", "The last metadata record that a majority of the voters has."
)
LAST_APPLIED_LAG: Final = _controller(
    "LastAppliedRecordLagMs", "How long applied records have been waiting to be committed; 0 if all are."
)
NEW_ACTIVE_CONTROLLERS: Final = _controller(
    "NewActiveControllersCount", "How many controllers have been elected since the cluster was formed."
)
EVENT_QUEUE_TIME: Final = histogram(
    "kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs",
    "How late the controller's loop is at its periodic work: the time that an event waits in its queue.",
)
