"""The size of a cluster, which its driver follows: a configuration of all brokers.

The keys are `sparklog.racks` and `sparklog.brokers.per.rack`; Kafka's kafka-configs.sh changes them as well.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY
from sparklog.node.config.size_request import size_request
from sparklog.node.metadata.cluster_size import beyond
from sparklog.node.metadata.schemas import ResourceType
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.client.cluster_client import ClusterClient


class Members(NamedTuple):
    """The live brokers of a cluster, and the replicas on each."""

    racks: Mapping[BrokerId, str | None]
    replicas: Mapping[BrokerId, int]

    def surplus(self, racks: int | None, brokers_per_rack: int | None) -> dict[BrokerId, int]:
        """Return the brokers beyond that size, each with its number of replicas."""
        leaving = beyond(self.racks, racks, brokers_per_rack)
        return {each: self.replicas.get(each, 0) for each in sorted(leaving)}


class ConfiguredSize(NamedTuple):
    """The size of a cluster by its configuration; None is no limit."""

    racks: int | None = None
    brokers_per_rack: int | None = None


def configured_size(cluster: ClusterClient) -> ConfiguredSize:
    """Return the size that the cluster has, or is about to have.

    Raises:
        KafkaError: the configuration of all brokers may not be described, or no broker answers.
    """
    keys = (RACKS_KEY, BROKERS_PER_RACK_KEY)
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name="", configuration_keys=keys
    )
    response = cluster.ask_any(DescribeConfigsRequest(resources=(resource,)))
    (result,) = response.results
    if result.error_code is not ErrorCode.none:
        raise KafkaError(result.error_code, result.error_message or result.error_code.name)
    values = {each.name: int(each.value) for each in result.configs if each.value is not None}
    return ConfiguredSize(values.get(RACKS_KEY), values.get(BROKERS_PER_RACK_KEY))


def alter_size(cluster: ClusterClient, racks: int | None, brokers_per_rack: int | None) -> None:
    """Change the numbers that are not None.

    Raises:
        KafkaError: INVALID_CONFIG: a topic has more replicas than brokers would be left.
        KafkaError: no broker answers.
    """
    response = cluster.ask_any(size_request(racks, brokers_per_rack))
    (changed,) = response.responses
    if changed.error_code is not ErrorCode.none:
        raise KafkaError(changed.error_code, changed.error_message or changed.error_code.name)


def members(cluster: ClusterClient) -> Members:
    """Return the live brokers of the cluster.

    Raises:
        ApiTimeoutError: no broker answered in time.
    """
    metadata = cluster.metadata()
    replicas: dict[BrokerId, int] = {}
    for topic in metadata.topics:
        for partition in topic.partitions:
            for broker_id in partition.replica_nodes:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    return Members({each.node_id: each.rack for each in metadata.brokers}, replicas)
