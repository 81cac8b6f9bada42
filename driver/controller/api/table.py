"""The APIs of the controller's listener: their versions, and each one's handler once this driver leads.

Requests that change the cluster go to the machine and are answered when committed (`changes`, `brokers`);
queries are answered from the committed image (`queries`); brokers follow the metadata log by Fetch
(`metadata_log`); an Envelope holds a client's request that a broker has forwarded (`envelope`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from sparklog.driver.controller.api.brokers import BrokerHandlers
from sparklog.driver.controller.api.changes import ChangeHandlers
from sparklog.driver.controller.api.envelope import EnvelopeHandler
from sparklog.driver.controller.api.metadata_log import MetadataLogHandlers
from sparklog.driver.controller.api.queries import QueryHandlers
from sparklog.driver.controller.api.telemetry import ControllerTelemetry
from sparklog.driver.controller.broker_liveness import BrokerLiveness
from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.controller import DECIDED_APIS, Controller
from sparklog.driver.controller.metadata_fetches import MetadataFetches
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.driver.monitoring.telemetry_intake import Push
from sparklog.node.apis.listeners import listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import CLIENT_VERSIONS, ROWS
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.descriptions import Descriptions
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError


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
    changes = ChangeHandlers(config, controller, commit_queue)
    brokers = BrokerHandlers(controller, commit_queue, broker_liveness, quorum)
    queries = QueryHandlers(
        cluster_id, config, committed_image, endpoints, changes.create_topics, until_any_live
    )
    metadata_log = MetadataLogHandlers(fetches, quorum, endpoints)
    telemetry = ControllerTelemetry(committed_image, take_telemetry)
    handlers: dict[ApiKey, Handler] = {
        **dict.fromkeys(CLIENT_VERSIONS, _only_brokers_serve),
        **dict.fromkeys(DECIDED_APIS, changes.handle),
        ApiKey.UNREGISTER_BROKER: changes.handle_over_decisions,
        ApiKey.BROKER_REGISTRATION: brokers.registration,
        ApiKey.BROKER_HEARTBEAT: brokers.heartbeat,
        ApiKey.METADATA: queries.metadata,
        ApiKey.DESCRIBE_CLUSTER: queries.cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: queries.topic_partitions,
        ApiKey.FIND_COORDINATOR: queries.coordinator,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: queries.reassignments,
        **Descriptions(queries.image, config).handlers(),
        ApiKey.DESCRIBE_QUORUM: metadata_log.describe_quorum,
        ApiKey.FETCH: metadata_log.fetch,
        ApiKey.FETCH_SNAPSHOT: metadata_log.fetch_snapshot,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.direct.get_subscriptions,
        ApiKey.PUSH_TELEMETRY: telemetry.direct.push,
    }
    in_envelope = {api_key: handlers[api_key] for api_key, row in ROWS.items() if row.is_in_envelope}
    in_envelope[ApiKey.PUSH_TELEMETRY] = telemetry.take_forwarded
    admitting = _admitting(config, controller, committed_image)
    admitted = {api_key: admitting(handler) for api_key, handler in in_envelope.items()}
    handlers[ApiKey.ENVELOPE] = EnvelopeHandler(admitted).handle
    return {api_key: admitting(handler) for api_key, handler in handlers.items()}


def _admitting(
    config: BrokerConfig, controller: Controller, committed_image: Callable[[], MetadataImage]
) -> Callable[[Handler], Handler]:
    """Return a wrapper that has handlers answer only authorized requests, if an authorizer is configured.

    The leader authorizes, not the dispatcher, which does not know the ACLs before this driver leads. Until
    the beginning of the epoch is committed the replayed ACLs apply, since registrations are authorized, too.
    """
    if config.authorizer is None:
        return lambda handler: handler
    from sparklog.node.authorization.authorization import Authorization

    def image() -> MetadataImage:
        committed = committed_image()
        return controller.image if committed.offset is None else committed

    loop, guards = asyncio.get_running_loop(), listener_guards(Side.CONTROLLER, config)
    return Authorization(config.authorizer, guards, image, loop).admitting


def _only_brokers_serve(request: Request) -> Response:
    """Refuse an API that is advertised here for brokers only; a client with metadata asks brokers.

    Raises:
        KafkaError: always; the connection is closed, and the client refreshes its metadata.
    """
    raise KafkaError(
        ErrorCode.not_leader_or_follower,
        f"{request.connection.peer} asks here for {ApiKey(request.api_key).name}, which brokers serve",
    )
