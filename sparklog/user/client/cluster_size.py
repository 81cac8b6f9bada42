"""The size of a cluster, which its driver follows: a configuration of all brokers.

The keys are `sparklog.racks` and `sparklog.brokers.per.rack`; Kafka's kafka-configs.sh changes them as well.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY
from sparklog.node.config.keys.rack_keys import NAMES_KEY
from sparklog.node.config.size_request import configured_numbers, configured_rack_names, size_request
from sparklog.node.metadata.cluster_size import ClusterSize, SizeChange, beyond
from sparklog.node.metadata.schemas import ResourceType
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.client.cluster_client import ClusterClient


class ConfiguredSize(NamedTuple):
    """The size of a cluster by its configuration; None is no limit."""

    racks: int | None = None
    brokers_per_rack: int | None = None
    rack_names: tuple[str, ...] = ()

    def surplus(self, racks: Mapping[BrokerId, str | None]) -> frozenset[BrokerId]:
        """Return the brokers beyond the size, of those with these racks."""
        return beyond(racks, self.racks, self.brokers_per_rack, self.rack_names)

    def size(self, racks: Mapping[BrokerId, str | None]) -> ClusterSize:
        """Return the size; a number that is not configured is that of the brokers with these racks."""
        return ClusterSize.of(racks, self.rack_names).changed(self.racks, self.brokers_per_rack)


class Members(NamedTuple):
    """The registered brokers of a cluster, and the replicas on each."""

    racks: Mapping[BrokerId, str | None]
    fenced: frozenset[BrokerId]
    """Brokers that do not serve: they are away, or begin."""
    replicas: Mapping[BrokerId, int]


def configured_size(cluster: ClusterClient) -> ConfiguredSize:
    """Return the size that the cluster has, or is about to have.

    Raises:
        KafkaError: the configuration of brokers may not be described, or no broker answers.
    """
    keys = (RACKS_KEY, BROKERS_PER_RACK_KEY, NAMES_KEY)

    def request(broker_id: BrokerId) -> DescribeConfigsRequest:
        # Names of racks are static: they are not among the values of all brokers.
        resource = DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=str(broker_id), configuration_keys=keys
        )
        return DescribeConfigsRequest(resources=(resource,))

    (result,) = cluster.ask_any_by_id(request).results
    if result.error_code is not ErrorCode.none:
        raise KafkaError(result.error_code, result.error_message or result.error_code.name)
    values = {each.name: each.value for each in result.configs if each.value}
    return ConfiguredSize(*configured_numbers(values), configured_rack_names(values))


def alter_size(cluster: ClusterClient, change: SizeChange) -> None:
    """Change the numbers that are not None.

    Raises:
        KafkaError: INVALID_CONFIG: a topic has more replicas than brokers would be left, or the cluster would
            have too many.
        KafkaError: no broker answers.
    """
    response = cluster.ask_any(size_request(*change))
    (changed,) = response.responses
    if changed.error_code is not ErrorCode.none:
        raise KafkaError(changed.error_code, changed.error_message or changed.error_code.name)


def members(cluster: ClusterClient) -> Members:
    """Return the brokers of the cluster, those that are away included.

    Raises:
        ApiTimeoutError: no broker answered in time.
        KafkaError: a broker did not answer.
    """
    described = cluster.ask_any(
        DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=True
        )
    )
    if described.error_code is not ErrorCode.none:
        raise KafkaError(described.error_code, described.error_message or described.error_code.name)
    replicas: dict[BrokerId, int] = {}
    for topic in cluster.metadata().topics:
        for partition in topic.partitions:
            for broker_id in partition.replica_nodes:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    return Members(
        {each.broker_id: each.rack for each in described.brokers},
        frozenset(each.broker_id for each in described.brokers if each.is_fenced),
        replicas,
    )
