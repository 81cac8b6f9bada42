"""Queries about the cluster, answered from the newest committed image."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.node.apis.cluster import DESCRIBE_TOPIC_PARTITIONS, METADATA, unnamed_topics
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import are_topics_named
from sparklog.node.responses.describe_cluster import ControllerNode, describe_cluster_response
from sparklog.node.responses.describe_topic_partitions import describe_topic_partitions_response
from sparklog.node.responses.find_coordinator import find_coordinator
from sparklog.node.responses.list_reassignments import list_reassignments_response
from sparklog.node.responses.metadata import metadata_response, topics_to_create
from sparklog.node.responses.reachability import is_any_live
from sparklog.node.responses.whole_metadata import WholeMetadata
from sparklog.node.serving.requests import Request, Response
from sparklog.protocol.codec.versions import upgrade, upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError


class QueryHandlers:
    """Answers Metadata, FindCoordinator and the descriptions of cluster, reassignments and topics."""

    def __init__(
        self,
        cluster_id: str,
        config: BrokerConfig,
        committed_image: Callable[[], MetadataImage],
        endpoints: Sequence[Endpoint],
        create_topics: Callable[[Iterable[str], Request | None], None],
        until_any_live: Callable[[], Awaitable[object]],
    ) -> None:
        """Answer from `committed_image`; `until_any_live` waits for an image with an unfenced broker.

        `endpoints` are the controller's, by the names of the brokers' listeners whose addresses the
        responses have.
        """
        self._cluster_id = cluster_id
        self._config = config
        self._committed_image = committed_image
        self._endpoints = {endpoint.name: endpoint for endpoint in reversed(endpoints)}
        self._create_topics = create_topics
        self._until_any_live = until_any_live
        self._whole_metadata = {
            endpoint.name: WholeMetadata(endpoint.name, cluster_id=cluster_id) for endpoint in endpoints
        }

    async def metadata(self, request: Request) -> Response:
        """Answer Metadata, once any broker is live; topics that are being created are unknown for now."""
        body = await upgrade_in_steps(request.body)
        if not are_topics_named(body.topics, request.api_version):
            return await METADATA.refused(body, unnamed_topics())
        image = self.image()
        if not is_any_live(image):
            await self._until_any_live()
            image = self.image()
        if body.topics is None:
            return self._whole_metadata[request.listener_name].answer(image, body, request.api_version)
        if self._config.auto_create_topics_enable:
            self._create_topics((await topics_to_create(image, body)), request)
        return await metadata_response(
            image,
            body,
            request.listener_name,
            cluster_id=self._cluster_id,
            request_version=request.api_version,
        )

    def coordinator(self, request: Request) -> Awaitable[Response]:
        """Answer FindCoordinator; the first request creates a coordinator's topic."""
        return find_coordinator(
            request, self.image(), request.listener_name, lambda names: self._create_topics(names, None)
        )

    def cluster(self, request: Request) -> Response:
        return describe_cluster_response(
            self.image(),
            upgrade(request.body),
            request.listener_name,
            cluster_id=self._cluster_id,
            controllers=[ControllerNode(CONTROLLER_ID, self._endpoints[request.listener_name])],
        )

    async def reassignments(self, request: Request) -> Response:
        body = await upgrade_in_steps(request.body)
        return await list_reassignments_response(self.image(), body)

    async def topic_partitions(self, request: Request) -> Response:
        try:
            return await describe_topic_partitions_response(
                self.image(),
                request.body,
                request.listener_name,
                max_partitions=self._config.max_request_partition_size_limit,
                access=request.access,
            )
        except KafkaError as error:
            request.connection.note("DescribeTopicPartitions", str(error))
            return DESCRIBE_TOPIC_PARTITIONS.refuse(request, error)

    def image(self) -> MetadataImage:
        """Return the committed image.

        Raises:
            KafkaError: NOT_CONTROLLER: nothing is known to be committed yet. From an empty response clients
                would conclude that their topics are gone, and give up records that wait for them.
        """
        image = self._committed_image()
        if image.offset is None:
            raise KafkaError(ErrorCode.not_controller, "the beginning of its epoch is not committed yet")
        return image
