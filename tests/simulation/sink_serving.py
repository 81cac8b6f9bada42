"""What else a broker's process answers where sinks are: finding brokers, groups and transactions.

Production's handlers as they are, but for those of Metadata and FindCoordinator, of which there are the
answers only: what the shells around these wait for is known by the connections of a real process.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse

from sparklog.executor.api.list_offsets import ListOffsetsHandler
from sparklog.executor.coordinators.transactions.api.describe_transactions import DescribeTransactionsHandler
from sparklog.executor.coordinators.transactions.api.list_transactions import ListTransactionsHandler
from sparklog.node.responses.describe_topic_partitions import describe_topic_partitions_response
from sparklog.node.responses.find_coordinator import find_coordinator
from sparklog.node.responses.metadata import metadata_response
from sparklog.node.responses.reachability import is_any_live
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

_NO_EXECUTOR: Any = None
_TRANSACTION_VERSION: Final = 2
_MAX_PARTITIONS: Final = 2
"""Told at once: fewer than there are."""
_LIVE_PAUSE_S: Final = 0.02


def sink_handlers(broker: "BrokerProcess", of_transactions: Any) -> dict[ApiKey, Handler]:
    """Return the handlers, given the coordinators of transactions as they are asked."""

    async def metadata(request: Request) -> Response:
        # As production's: who knows nobody that is live has just begun.
        while not is_any_live(broker.image):  # noqa: ASYNC110  (nothing else here needs to be told)
            await asyncio.sleep(_LIVE_PAUSE_S)
        return metadata_of(request)

    async def metadata_of(request: Request) -> Response:
        return await metadata_response(
            broker.image,
            upgrade(request.body),
            request.listener_name,
            cluster_id="simulated",
            request_version=request.api_version,
        )

    async def topic_partitions(request: Request) -> Response:
        return await describe_topic_partitions_response(
            broker.image, upgrade(request.body), request.listener_name, max_partitions=_MAX_PARTITIONS
        )

    def coordinator(request: Request) -> Awaitable[Response]:
        return find_coordinator(request, broker.image, request.listener_name, lambda _: None)

    return {
        ApiKey.API_VERSIONS: _api_versions,
        ApiKey.METADATA: metadata,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_partitions,
        ApiKey.FIND_COORDINATOR: coordinator,
        ApiKey.CREATE_TOPICS: lambda request: _topics_are_there(broker, request),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(broker.replicas, _NO_EXECUTOR).handle,
        ApiKey.LIST_TRANSACTIONS: ListTransactionsHandler(of_transactions).handle,
        ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactionsHandler(of_transactions, lambda _: None).handle,
    }


def _api_versions(request: Request) -> Response:
    apis = []
    for api_key in ApiKey:
        known = known_versions(api_key)
        apis.append(
            ApiVersion(api_key=int(api_key), min_version=known.min_version, max_version=known.max_version)
        )
    feature = FinalizedFeatureKey(
        name="transaction.version",
        max_version_level=_TRANSACTION_VERSION,
        min_version_level=_TRANSACTION_VERSION,
    )
    return unthrottled(
        ApiVersionsResponse,
        error_code=ErrorCode.none,
        api_keys=tuple(apis),
        supported_features=(),
        finalized_features_epoch=0,
        finalized_features=(feature,),
        zk_migration_ready=False,
    )


def _topics_are_there(broker: "BrokerProcess", request: Request) -> Response:
    """Return what the controller says when a broker that is behind is asked: everything was made before."""
    return unthrottled(
        CreateTopicsResponse,
        topics=tuple(
            CreatableTopicResult(
                name=topic.name,
                topic_id=None,
                error_code=ErrorCode.topic_already_exists
                if broker.world.has_topic(topic.name)
                else ErrorCode.not_controller,
                error_message=None,
                topic_config_error_code=ErrorCode.none,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
            for topic in request.body.topics
        ),
    )
