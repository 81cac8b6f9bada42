"""Topic configurations by DescribeConfigs."""

from collections.abc import Collection, Mapping
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

from sparklog.protocol.errors import ErrorCode
from sparklog.user.client.cluster_client import ClusterClient

_TOPIC: Final = 2


def describe_topic_configs(
    cluster: ClusterClient, topics: Collection[str], keys: Collection[str]
) -> dict[str, Mapping[str, str]]:
    """Return the values of `keys` for the existing topics that may be described.

    Raises:
        KafkaError: no broker answered.
    """
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=tuple(keys))
            for topic in topics
        )
    )
    response = cluster.ask_any(request)
    return {
        result.resource_name: {each.name: each.value for each in result.configs if each.value is not None}
        for result in response.results
        if result.error_code is ErrorCode.none
    }
