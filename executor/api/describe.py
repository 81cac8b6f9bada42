"""Descriptions from the metadata image."""

from collections.abc import Callable, Mapping

from sparklog.executor.api.metadata import advertised_controller
from sparklog.executor.api.services import BrokerServices
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.describe_cluster import describe_cluster_response
from sparklog.node.responses.describe_topic_partitions import describe_topic_partitions_response
from sparklog.node.responses.descriptions import Descriptions
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.versions import upgrade, upgrade_in_steps
from sparklog.protocol.types import BrokerId


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    describe = DescribeHandlers(
        services.image,
        cluster_id=services.cluster_id,
        node_id=services.node_id,
        config=services.config,
    )
    return {
        **Descriptions(services.image, services.config).handlers(),
        ApiKey.DESCRIBE_CLUSTER: describe.cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe.topic_partitions,
    }


class DescribeHandlers:
    """The handlers; addresses are those of the request's listener."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        cluster_id: str,
        node_id: BrokerId,
        config: BrokerConfig,
    ) -> None:
        self._image = image
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._config = config

    def cluster(self, request: Request) -> Response:
        """Answer DescribeCluster; controllers are not described here (KIP-919)."""
        image = self._image()
        return describe_cluster_response(
            image,
            upgrade(request.body),
            request.listener_name,
            cluster_id=self._cluster_id,
            controller_id=advertised_controller(image, self._node_id),
        )

    async def topic_partitions(self, request: Request) -> Response:
        """Answer one page of DescribeTopicPartitions."""
        body = await upgrade_in_steps(request.body)
        return await describe_topic_partitions_response(
            self._image(),
            body,
            request.listener_name,
            max_partitions=self._config.max_request_partition_size_limit,
            access=request.access,
        )
