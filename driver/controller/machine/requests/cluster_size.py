"""The check of a changed size of the cluster: no topic may have more replicas than there are brokers left.

The size is a configuration of all brokers, `sparklog.racks` and `sparklog.brokers.per.rack`. The driver
starts missing brokers; surplus ones are drained before they end (`draining`).
"""

from collections.abc import Mapping
from typing import Final

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.node.config import BrokerConfig
from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, MAX_BROKERS_KEY, RACKS_KEY
from sparklog.node.metadata.cluster_size import ClusterSize, beyond
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

SIZE_KEYS: Final = frozenset({RACKS_KEY, BROKERS_PER_RACK_KEY})


def check_size(cluster: ClusterState, wanted: BrokerConfig, changed: Mapping[str, str | None]) -> None:
    """Check that a smaller cluster has room for all replicas, on brokers that serve.

    A larger one has at most `sparklog.max.brokers`, or as many as there are, and racks of different names.

    A size is not removed: without one the controller would have no limit, and the driver that of its start.

    Raises:
        KafkaError: INVALID_CONFIG; the message has the topic and the numbers, or the names.
    """
    for name in sorted(SIZE_KEYS):
        if name in changed and changed[name] is None:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"{name} is the cluster's size: set another number, do not delete it",
            )
    racks = {each: broker.rack for each, broker in cluster.image.brokers.items()}
    present = ClusterSize.of(racks, wanted.sparklog_rack_names)
    size = present.changed(wanted.sparklog_racks, wanted.sparklog_brokers_per_rack)
    if size.brokers > max(wanted.sparklog_max_brokers, present.brokers):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{size} would be {size.brokers} brokers, and {MAX_BROKERS_KEY} is "
            f"{wanted.sparklog_max_brokers}: choose a smaller size, or start the application with "
            "a larger maximum",
        )
    if size.racks > present.racks:
        wanted.check_racks(size.racks)
    # A broker may be forgotten (UnregisterBroker) whose replicas are still assigned.
    config = cluster.config
    before = present.changed(config.sparklog_racks, config.sparklog_brokers_per_rack)
    if size.brokers >= max(present.brokers, before.brokers):
        return
    _check_replicas(cluster, size)
    _check_serving(cluster, size, racks, wanted)


def _check_replicas(cluster: ClusterState, size: ClusterSize) -> None:
    for topic in cluster.image.topics.by_id.values():
        replicas = max((len(each.target_replicas) for each in topic.partitions.values()), default=0)
        if replicas > size.brokers:
            minimum = cluster.isr_rules(topic.name).min_in_sync_replicas
            raise KafkaError(
                ErrorCode.invalid_config,
                f"{size} would be too few for topic {topic.name}: its partitions have {replicas} replicas "
                f"(min.insync.replicas is {minimum}), and brokers would be {size.brokers}. Keep at least "
                f"{replicas} brokers, or reassign the topic to fewer replicas first",
            )


def _check_serving(
    cluster: ClusterState, size: ClusterSize, racks: Mapping[BrokerId, str | None], wanted: BrokerConfig
) -> None:
    leaving = beyond(racks, size.racks, size.brokers_per_rack, wanted.sparklog_rack_names)
    staying = racks.keys() - leaving
    fenced = {each for each in staying if cluster.image.brokers[each].fenced}
    if not fenced:
        return
    to_start = max(size.brokers - len(staying), 0)
    for topic in cluster.image.topics.by_id.values():
        for number, partition in topic.partitions.items():
            replicas = set(partition.target_replicas)
            if len(replicas & leaving) > to_start + len(staying - fenced - replicas):
                raise KafkaError(
                    ErrorCode.invalid_config,
                    f"{size} would be too few for {topic.name}-{number} now: its replicas are on brokers "
                    f"{sorted(replicas)}, and {sorted(fenced)} of those that stay do not serve. Start them "
                    "first",
                )
