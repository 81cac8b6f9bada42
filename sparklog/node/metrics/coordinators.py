"""Metrics of the group coordinator and the transaction coordinator.

Source: Kafka's CoordinatorRuntimeMetricsImpl, GroupCoordinatorMetrics, TransactionStateManager,
TransactionMarkerChannelManager, AddPartitionsToTxnManager.
"""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric, gauge, histogram, meter

GROUP_TYPE: Final = "group-coordinator-metrics"
TRANSACTION_TYPE: Final = "transaction-coordinator-metrics"


def _runtime(type_: str, attribute: str, meaning: str, tags: tuple[str, ...] = ()) -> Metric:
    return Metric("kafka.server", type_, None, Kind.GAUGE, meaning, tags, attribute)


def _load_times(type_: str) -> tuple[Metric, Metric]:
    return (
        _runtime(type_, "partition-load-time-max", "The longest load of a partition of the last 30 seconds."),
        _runtime(type_, "partition-load-time-avg", "The average load of the last 30 seconds."),
    )


def _count(attribute: str, meaning: str) -> Metric:
    return Metric("kafka.server", GROUP_TYPE, None, Kind.METER, meaning, (), attribute)


def _groups(name: str, meaning: str) -> Metric:
    return Metric("kafka.coordinator.group", "GroupMetadataManager", name, Kind.GAUGE, meaning)


GROUP_PARTITIONS: Final = _runtime(
    GROUP_TYPE, "num-partitions", "Partitions of __consumer_offsets led by this broker, by state.", ("state",)
)
GROUP_LOAD_TIMES: Final = _load_times(GROUP_TYPE)
GROUP_QUEUE_SIZE: Final = _runtime(
    GROUP_TYPE, "event-queue-size", "Requests that wait for their records to be committed."
)
GROUP_COUNT: Final = _runtime(GROUP_TYPE, "group-count", "Groups, by protocol.", ("protocol",))
CONSUMER_GROUP_COUNT: Final = _runtime(
    GROUP_TYPE, "consumer-group-count", "Groups of the consumer protocol, by state.", ("state",)
)
OFFSET_COMMITS: Final = _count("offset-commit-count", "Offsets committed.")
OFFSET_EXPIRATIONS: Final = _count("offset-expiration-count", "Offsets that have expired.")
OFFSET_DELETIONS: Final = _count("offset-deletion-count", "Offsets deleted by admins, groups' included.")
COMPLETED_REBALANCES: Final = _count(
    "group-completed-rebalance-count", "Rebalances of classic groups that were completed."
)
CONSUMER_REBALANCES: Final = _count(
    "consumer-group-rebalance-count", "Rebalances of groups of the consumer protocol."
)
NUM_OFFSETS: Final = _groups("NumOffsets", "Committed offsets.")
NUM_GROUPS: Final = _groups("NumGroups", "Classic groups, those that only have offsets included.")
CLASSIC_STATES: Final = {
    state: _groups(f"NumGroups{state}", f"Classic groups in the state {state}.")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
}
CONSUMER_STATES: Final = ("empty", "assigning", "reconciling", "stable", "dead")

TRANSACTION_LOAD_TIMES: Final = _load_times(TRANSACTION_TYPE)
UNKNOWN_DESTINATION_QUEUE: Final = gauge(
    "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize",
    "Transaction markers for partitions without a leader.",
)
LOG_APPEND_RETRY_QUEUE: Final = gauge(
    "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=LogAppendRetryQueueSize",
    "Transactions whose markers are written and whose completion is not appended yet.",
)
VERIFICATION_FAILURES: Final = meter(
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
    "Partitions that a transaction's coordinator did not confirm.",
)
VERIFICATION_TIME: Final = histogram(
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
    "How long a transaction's coordinator takes to verify partitions.",
)
