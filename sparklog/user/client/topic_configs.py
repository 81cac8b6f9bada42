"""Topic configurations by DescribeConfigs."""

from collections.abc import Collection, Mapping
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.cluster_client import ClusterClient

_TOPIC: Final = 2


def describe_topic_configs(
    cluster: ClusterClient, topics: Collection[str], keys: Collection[str]
) -> dict[str, Mapping[str, str]]:
    """Return the values of `keys` for the existing topics that may be described.

    Raises:
        KafkaError: no broker answered.
    """
    broker_id, channel = cluster.any_channel()
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=tuple(keys))
            for topic in topics
        )
    )
    try:
        response = channel.request(request)
    except KafkaError:
        cluster.disconnect(broker_id)
        raise
    return {
        result.resource_name: {each.name: each.value for each in result.configs if each.value is not None}
        for result in response.results
        if result.error_code is ErrorCode.none
    }
