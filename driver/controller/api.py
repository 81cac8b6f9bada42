"""What the controller's listener answers, and how.

Three kinds of requests: those that change the cluster go to the machine and are answered when committed;
those that ask about it are answered from the committed image; Fetch and Envelope have ways of their own. An
Envelope holds a client's request that a broker has passed on (KIP-590): the same handlers answer it.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import GeneratorType
from typing import Any, Final

from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.envelope.v0.response import EnvelopeResponse

from driver.controller.broker_liveness import BrokerLiveness
from driver.controller.commit_queue import CommitQueue
from driver.controller.machine.cluster_state import CONTROLLER_ID
from driver.controller.machine.controller import Controller
from driver.controller.machine.create_topics import MAX_PARTITIONS_PER_REQUEST, asks_too_much
from driver.controller.machine.parts import TOPICS_PER_PART, joined, parts_of, refused
from driver.controller.metadata_fetches import MetadataFetches
from driver.controller.quorum.description import describe_quorum_response
from driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.answers.describe_configs import describe_configs_response
from sparklog.answers.find_coordinator import handle_find_coordinator
from sparklog.answers.metadata import (
    ControllerNode,
    describe_cluster_response,
    describe_topic_partitions_response,
    metadata_response,
    topics_to_create,
)
from sparklog.answers.whole_metadata import WholeMetadata
from sparklog.clocks import monotonic_ms
from sparklog.config import BrokerConfig
from sparklog.endpoints import Endpoint
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.image import MetadataImage
from sparklog.metadata.schemas import PartitionRecord
from sparklog.types import CLUSTER_METADATA_TOPIC_ID
from sparklog.wire.apis import CLIENT_VERSIONS, ApiKey, SupportedVersions, known_versions
from sparklog.wire.frames import RequestHeader, decode_request_in_steps, encode_response_in_steps
from sparklog.wire.requests import Deferred, Handler, Request, Response, Steps
from sparklog.wire.throttling import unthrottled
from sparklog.wire.versions import upgrade, upgrade_in_steps

__all__ = ["ABOUT_FEW", "Handlers", "controller_versions"]

logger = logging.getLogger(__name__)

_CHANGES: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
)
"""What clients may ask to be changed, directly or through a broker."""
_DIRECT_CHANGES: Final = (
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ALTER_PARTITION,
    ApiKey.INIT_PRODUCER_ID,
)
"""What is not forwarded: brokers ask it for themselves, or, the last, answer it themselves."""
_FIRST_FETCH_VERSION: Final = 13
"""Fetch by topic id; the metadata log is not fetched by name."""


_BROKERS_ONLY: Final = (
    *(api_key for api_key in _DIRECT_CHANGES if api_key not in CLIENT_VERSIONS),
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ENVELOPE,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
)
"""What clients do not ask of brokers, so that `CLIENT_VERSIONS` does not name it."""


ABOUT_FEW: Final = frozenset(CLIENT_VERSIONS).union(_BROKERS_ONLY) - {
    *_CHANGES,
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.METADATA,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.FIND_COORDINATOR,
}
"""What is asked here about one broker, or about the one partition of the metadata log, or in vain."""


def controller_versions() -> dict[ApiKey, SupportedVersions]:
    """Return the APIs that `Handlers` answers."""
    return {**CLIENT_VERSIONS, **{api_key: known_versions(api_key) for api_key in _BROKERS_ONLY}}


class Handlers:
    """The controller's requests, on its event loop."""

    def __init__(
        self,
        cluster_id: str,
        config: BrokerConfig,
        controller: Controller,
        commit_queue: CommitQueue,
        fetches: MetadataFetches,
        broker_liveness: BrokerLiveness,
        quorum: QuorumLeader,
        committed_image: Callable[[], MetadataImage],
        endpoint: Endpoint,
    ) -> None:
        self._cluster_id = cluster_id
        self._config = config
        self._controller = controller
        self._commit_queue = commit_queue
        self._fetches = fetches
        self._broker_liveness = broker_liveness
        self._quorum = quorum
        self._committed_image = committed_image
        self._endpoint = endpoint
        self._listener_name = config.listeners[0].name
        self._whole_metadata = WholeMetadata(self._listener_name, cluster_id=cluster_id)
        self._creating: set[str] = set()
        self._queries: Mapping[ApiKey, Callable[[Any, int], Any]] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe_topic_partitions,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
        }

    def table(self) -> dict[ApiKey, Handler]:
        """Return who answers what; `controller_versions` says which APIs there are."""
        return {
            **dict.fromkeys(CLIENT_VERSIONS, _only_brokers_serve),
            **dict.fromkeys(self._queries, self._query),
            **dict.fromkeys(_DIRECT_CHANGES, self._change),
            **dict.fromkeys(_CHANGES, self._change_for_client),
            ApiKey.BROKER_REGISTRATION: self._from_broker,
            ApiKey.BROKER_HEARTBEAT: self._heartbeat,
            ApiKey.FETCH: self._fetch,
            ApiKey.FETCH_SNAPSHOT: self._fetch_snapshot,
            ApiKey.ENVELOPE: self._envelope,
            ApiKey.FIND_COORDINATOR: handle_find_coordinator,
        }

    def _change(self, request: Request) -> Deferred:
        """Decide about what a broker asks for itself."""
        deferred = Deferred()
        decision = self._controller.handle(upgrade(request.body), monotonic_ms())
        self._commit_queue.submit(decision, deferred.complete)
        return deferred

    def _change_for_client(self, request: Request) -> Steps:
        """Decide about what a client asks for, which may be thousands of topics."""
        return self._decided(request.body)

    def _decided(self, body: Any) -> Generator[None, None, Deferred]:
        """Decide part by part; answer with a `Deferred` of the reply when all of it is committed."""
        request = yield from upgrade_in_steps(body)
        deferred = Deferred()
        new_partitions = 0
        parts = yield from parts_of(request)
        replies: dict[int, Any] = {}

        def answer(number: int, reply: Any) -> None:
            replies[number] = reply
            if len(replies) == len(parts):
                in_order = [replies[number] for number in range(len(parts))]
                deferred.complete(in_order[0] if len(parts) == 1 else joined(request, in_order))

        too_many = isinstance(request, CreateTopicsRequest) and asks_too_much(self._config, request)
        for number, part in enumerate(parts):
            yield
            if too_many:
                answer(number, refused(part))
                continue
            decision = self._controller.handle(part, monotonic_ms())
            new_partitions += sum(type(record) is PartitionRecord for record in decision.records)
            too_many = new_partitions >= MAX_PARTITIONS_PER_REQUEST
            self._commit_queue.submit(decision, partial(answer, number))
        return deferred

    def _from_broker(self, request: Request) -> Deferred:
        broker_id = request.body.broker_id

        def answer(reply: Any) -> None:
            if reply.error_code is ErrorCode.none:
                self._broker_liveness.seen(broker_id, request.connection)
            deferred.complete(reply)

        deferred = Deferred()
        self._commit_queue.submit(self._controller.handle(upgrade(request.body), monotonic_ms()), answer)
        return deferred

    def _heartbeat(self, request: Request) -> Response | Deferred:
        if not self._quorum.has_majority(monotonic_ms()):
            # Another driver may be giving this broker's leaderships away: its lease must not be renewed here.
            return unthrottled(
                BrokerHeartbeatResponse,
                error_code=ErrorCode.not_controller,
                is_caught_up=False,
                is_fenced=True,
                should_shut_down=False,
            )
        return self._from_broker(request)

    def _image(self) -> MetadataImage:
        """Return what queries are answered from.

        Raises:
            KafkaError: NOT_CONTROLLER: nothing is known to be committed yet. An empty answer would tell
                clients that their topics are gone, and they would give up records that wait for them.
        """
        image = self._committed_image()
        if image.offset is None:
            raise KafkaError(ErrorCode.not_controller, "the beginning of its epoch is not committed yet")
        return image

    def _query(self, request: Request) -> Steps:
        body = yield from upgrade_in_steps(request.body)
        if request.api_key is ApiKey.METADATA and body.topics is None:
            return self._whole_metadata.answer(self._image(), body, request.api_version)
        return (yield from self._answered(request.api_key, body, request.api_version))

    def _answered(self, api_key: ApiKey, body: Any, version: int) -> Steps:
        answer = self._queries[api_key](body, version)
        return (yield from answer) if isinstance(answer, GeneratorType) else answer

    def _metadata(self, request: Any, version: int) -> Steps:
        image = self._image()
        if self._config.auto_create_topics_enable:
            self._create((yield from topics_to_create(image, request)))
        return (
            yield from metadata_response(
                image, request, self._listener_name, cluster_id=self._cluster_id, request_version=version
            )
        )

    def _create(self, names: tuple[str, ...]) -> None:
        """Create topics because somebody asked for them; he asks again when he is told they are unknown."""
        new = [name for name in names if name not in self._creating][:TOPICS_PER_PART]
        if not new:
            return
        self._creating.update(new)
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=name, num_partitions=-1, replication_factor=-1, assignments=(), configs=()
                )
                for name in new
            )
        )
        decision = self._controller.handle(request, monotonic_ms())
        self._commit_queue.submit(decision, lambda _: self._creating.difference_update(new))

    def _describe_cluster(self, request: Any, _: int) -> Response:
        return describe_cluster_response(
            self._image(),
            request,
            self._listener_name,
            cluster_id=self._cluster_id,
            controllers=[ControllerNode(CONTROLLER_ID, self._endpoint)],
        )

    def _describe_configs(self, request: Any, _: int) -> Steps:
        return describe_configs_response(self._image(), self._config, request)

    def _describe_topic_partitions(self, request: Any, _: int) -> Steps:
        try:
            return (
                yield from describe_topic_partitions_response(
                    self._image(),
                    request,
                    self._listener_name,
                    max_partitions=self._config.max_request_partition_size_limit,
                )
            )
        except KafkaError as error:
            logger.info("DescribeTopicPartitions is refused: %s", error)
            return unthrottled(
                DescribeTopicPartitionsResponse,
                topics=tuple(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=error.error_code,
                        name=topic.name,
                        topic_id=None,
                        partitions=(),
                    )
                    for topic in request.topics
                ),
                next_cursor=None,
            )

    def _describe_quorum(self, request: Any, _: int) -> Response:
        return describe_quorum_response(self._quorum, request, monotonic_ms())

    def _fetch(self, request: Request) -> Response | Deferred:
        if request.api_version < _FIRST_FETCH_VERSION:
            return _only_brokers_serve(request)
        body = upgrade(request.body)
        self._note_position(body)
        return self._fetches.fetch(body, monotonic_ms())

    def _fetch_snapshot(self, request: Request) -> Response:
        return self._fetches.fetch_snapshot(upgrade(request.body), monotonic_ms())

    def _note_position(self, body: Any) -> None:
        replica = body.replica_state
        registration = self._controller.image.brokers.get(replica.replica_id)
        if registration is None or registration.broker_epoch != replica.replica_epoch:
            return
        for topic in body.topics:
            if topic.topic_id == CLUSTER_METADATA_TOPIC_ID and topic.partitions:
                self._controller.metadata_fetched(replica.replica_id, topic.partitions[0].fetch_offset)

    def _envelope(self, request: Request) -> Steps:
        try:
            header, body = yield from decode_request_in_steps(request.body.request_data)
            api_key = self._forwardable(header)
        except KafkaError as error:
            logger.warning("A forwarded request from %s is refused: %s", request.connection.peer, error)
            return EnvelopeResponse(response_data=None, error_code=error.error_code)
        if api_key in self._queries:
            newest = yield from upgrade_in_steps(body)
            reply = yield from self._answered(api_key, newest, header.api_version)
            return (yield from _enveloped(header, reply))
        decided = yield from self._decided(body)
        deferred = Deferred()
        decided.bind(lambda reply: deferred.complete(_enveloped(header, reply)))
        return deferred

    def _forwardable(self, header: RequestHeader) -> ApiKey:
        if header.api_key not in (*_CHANGES, *self._queries):
            raise KafkaError(ErrorCode.invalid_request, f"API {header.api_key} may not be forwarded")
        return ApiKey(header.api_key)


def _only_brokers_serve(request: Request) -> Response:
    """Answer what is advertised here for the brokers' sake, and no client sends here by the metadata it has.

    Raises:
        KafkaError: always; the connection is closed, and the client looks up where to turn.
    """
    raise KafkaError(
        ErrorCode.not_leader_or_follower,
        f"{request.connection.peer} asks here for {ApiKey(request.api_key).name}, which brokers serve",
    )


def _enveloped(header: RequestHeader, reply: Any) -> Steps:
    if isinstance(reply, GeneratorType):
        reply = yield from reply
    frame = yield from encode_response_in_steps(header, reply)
    return EnvelopeResponse(response_data=frame, error_code=ErrorCode.none)
