"""The APIs of the controller's listener: their versions, and who answers each once this driver leads.

Requests that change the cluster go to the machine and are answered when committed (`changes`, `brokers`);
those that ask about it are answered from the committed image (`queries`); the metadata log is followed by
Fetch (`metadata_log`); an Envelope holds a client's request that a broker has passed on (`envelope`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from sparklog.answers.descriptions import Descriptions
from sparklog.config import BrokerConfig
from sparklog.driver.controller.api.brokers import BrokerHandlers
from sparklog.driver.controller.api.changes import ChangeHandlers
from sparklog.driver.controller.api.envelope import EnvelopeHandler
from sparklog.driver.controller.api.metadata_log import MetadataLogHandlers
from sparklog.driver.controller.api.queries import QueryHandlers
from sparklog.driver.controller.api.telemetry import ControllerTelemetry
from sparklog.driver.controller.broker_liveness import BrokerLiveness
from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.metadata_fetches import MetadataFetches
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.driver.monitoring.telemetry_intake import Push
from sparklog.endpoints import Endpoint
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.image import MetadataImage
from sparklog.wire.apis import CLIENT_VERSIONS, ApiKey, known_versions
from sparklog.wire.requests import Api, Handler, Request, Response

_FROM_BROKERS: Final = (
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
)
"""What clients do not ask of brokers, so that `CLIENT_VERSIONS` does not name it."""
_ABOUT_MANY: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.FIND_COORDINATOR,
    }
)
"""The rest is asked here about one broker, about the one partition of the metadata log, or in vain."""


def controller_apis(handle: Handler) -> dict[ApiKey, Api]:
    """Return the listener's rows; `handle` hands each request on to the handlers of who leads."""
    versions = {**CLIENT_VERSIONS, **{api_key: known_versions(api_key) for api_key in _FROM_BROKERS}}
    return {api_key: Api(*versions[api_key], handle, many=api_key in _ABOUT_MANY) for api_key in versions}


def controller_handlers(
    cluster_id: str,
    config: BrokerConfig,
    controller: Controller,
    commit_queue: CommitQueue,
    fetches: MetadataFetches,
    broker_liveness: BrokerLiveness,
    quorum: QuorumLeader,
    committed_image: Callable[[], MetadataImage],
    until_any_live: Callable[[], Awaitable[object]],
    endpoints: Sequence[Endpoint],
    take_telemetry: Callable[[Push], None],
) -> Mapping[ApiKey, Handler]:
    """Return who answers what of `controller_apis` while this driver leads."""
    changes = ChangeHandlers(config, controller, commit_queue)
    brokers = BrokerHandlers(controller, commit_queue, broker_liveness, quorum)
    queries = QueryHandlers(
        cluster_id, config, committed_image, endpoints, changes.create_topics, until_any_live
    )
    metadata_log = MetadataLogHandlers(controller, fetches, quorum, endpoints)
    telemetry = ControllerTelemetry(committed_image, take_telemetry)
    forwardable: dict[ApiKey, Handler] = {
        ApiKey.CREATE_TOPICS: changes.handle,
        ApiKey.DELETE_TOPICS: changes.handle,
        ApiKey.CREATE_PARTITIONS: changes.handle,
        ApiKey.ALTER_CONFIGS: changes.handle,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: changes.handle,
        ApiKey.ELECT_LEADERS: changes.handle,
        ApiKey.ALTER_CLIENT_QUOTAS: changes.handle,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: changes.handle,
        ApiKey.CREATE_ACLS: changes.handle,
        ApiKey.DELETE_ACLS: changes.handle,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: changes.handle,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: queries.reassignments,
        ApiKey.UNREGISTER_BROKER: changes.handle_over_decisions,
        ApiKey.UPDATE_FEATURES: changes.handle,
        ApiKey.METADATA: queries.metadata,
        ApiKey.DESCRIBE_CLUSTER: queries.cluster,
        **Descriptions(queries.image, config).handlers(),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: queries.topic_partitions,
        ApiKey.DESCRIBE_QUORUM: metadata_log.describe_quorum,
    }
    forwardable |= {ApiKey.PUSH_TELEMETRY: telemetry.take_forwarded}
    admitting = _admitting(config, controller, committed_image)
    forwarded = {api_key: admitting(handler) for api_key, handler in forwardable.items()}
    handlers: dict[ApiKey, Handler] = {
        **dict.fromkeys(CLIENT_VERSIONS, _only_brokers_serve),
        **forwardable,
        ApiKey.ALTER_PARTITION: changes.handle,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: changes.handle,
        ApiKey.ALLOCATE_PRODUCER_IDS: changes.handle,
        ApiKey.INIT_PRODUCER_ID: changes.handle,
        ApiKey.BROKER_REGISTRATION: brokers.registration,
        ApiKey.BROKER_HEARTBEAT: brokers.heartbeat,
        ApiKey.FETCH: metadata_log.fetch,
        ApiKey.FETCH_SNAPSHOT: metadata_log.fetch_snapshot,
        ApiKey.ENVELOPE: EnvelopeHandler(forwarded).handle,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.direct.get_subscriptions,
        ApiKey.PUSH_TELEMETRY: telemetry.direct.push,
        ApiKey.FIND_COORDINATOR: queries.coordinator,
    }
    return {api_key: admitting(handler) for api_key, handler in handlers.items()}


def _admitting(
    config: BrokerConfig, controller: Controller, committed_image: Callable[[], MetadataImage]
) -> Callable[[Handler], Handler]:
    """Return what makes handlers answer only what may be asked, if an authorizer is configured.

    Not the dispatcher asks, but whoever leads: before that nobody knows the ACLs. Until the beginning of its
    epoch is committed they are those that it has replayed, since brokers that register are asked, too.
    """
    if config.authorizer is None:
        return lambda handler: handler
    from sparklog.authorization.authorization import Authorization
    from sparklog.authorization.guards.table import controller_guards

    def image() -> MetadataImage:
        committed = committed_image()
        return controller.image if committed.offset is None else committed

    loop = asyncio.get_running_loop()
    return Authorization(config.authorizer, controller_guards(config), image, loop).admitting


def _only_brokers_serve(request: Request) -> Response:
    """Answer what is advertised here for the brokers' sake, and no client sends here by the metadata it has.

    Raises:
        KafkaError: always; the connection is closed, and the client looks up where to turn.
    """
    raise KafkaError(
        ErrorCode.not_leader_or_follower,
        f"{request.connection.peer} asks here for {ApiKey(request.api_key).name}, which brokers serve",
    )
