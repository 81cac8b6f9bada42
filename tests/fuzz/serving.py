"""A listener's own connections, with nobody behind the dispatcher: handlers look at what was decoded.

There is no address and no kernel: `Serving` is what a connection needs of its listener.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.acls.machine.authorizer import AuthorizerSettings
from sparklog.node.apis.cluster_actions import cluster_actions, guarded_cluster_actions
from sparklog.node.apis.listeners import listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import ROWS
from sparklog.node.authorization.authorization import Authorization
from sparklog.node.authorization.guards.guard import filled
from sparklog.node.config import BrokerConfig
from sparklog.node.limits.request_memory import RequestMemory
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage, TopicsImage
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.buffers import BufferPool
from sparklog.node.serving.connection import Connection
from sparklog.node.serving.dispatcher import Dispatcher
from sparklog.node.serving.request_metrics import RequestMetrics
from sparklog.node.serving.requests import Api, Request
from sparklog.node.serving.routes import Routes
from sparklog.node.serving.turns import FairQueue
from sparklog.protocol.codec.apis import ApiKey, known_versions, response_type
from tests.fuzz.finding import Finding
from tests.fuzz.loop import Loop, Socket

PATIENCE_S = 15.0
"""How long an input's connection lives; longer than a TLS handshake may take."""
_TOPICS = {name: TopicImage(name, UUID(int=number), {}) for number, name in enumerate(("mine", "theirs"), 1)}
_ACLS = (
    (AclResourceType.TOPIC, PatternType.LITERAL, "mine", AclOperation.ALL, AclPermissionType.ALLOW),
    (AclResourceType.TOPIC, PatternType.PREFIXED, "th", AclOperation.WRITE, AclPermissionType.ALLOW),
    (AclResourceType.TOPIC, PatternType.LITERAL, "theirs", AclOperation.READ, AclPermissionType.DENY),
    (AclResourceType.GROUP, PatternType.LITERAL, "*", AclOperation.READ, AclPermissionType.ALLOW),
    (
        AclResourceType.TRANSACTIONAL_ID,
        PatternType.PREFIXED,
        "t",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    ),
)
IMAGE: MetadataImage = replace(
    EMPTY_IMAGE,
    offset=1,
    topics=TopicsImage(_TOPICS, {topic.topic_id: topic for topic in _TOPICS.values()}),
    acls={
        UUID(int=number): Acl(kind, pattern, name, "User:*", "*", operation, permission)
        for number, (kind, pattern, name, operation, permission) in enumerate(_ACLS, 1)
    },
)


class _Log:
    """Of what connections say: what is a mistake of ours is a finding."""

    def write(self, level: int, peer: str, reason: str, line: str, **details: Any) -> None:
        if (error := details.get("exc_info")) is not None:
            raise Finding(line) from error


class Serving:
    """See the module."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        authentication: Authentication,
        handled: Callable[[Request], None],
        *,
        asks: bool = False,
        is_controller: bool = False,
    ) -> None:
        """With `asks` an authorizer is asked; `handled` is called with each request that has come so far."""
        config = BrokerConfig.from_mapping({})
        side = Side.CONTROLLER if is_controller else Side.BROKER
        guards: Mapping[ApiKey, Any] = listener_guards(side, config)
        self.name = name
        self.loop = loop
        self.pool = BufferPool()
        self.fair_queue = FairQueue(loop)
        self.authentication = authentication
        self.max_request_bytes = 1 << 20
        self.max_outstanding_requests = 256
        self.memory = None
        self.unauthenticated_memory = RequestMemory(1 << 20)
        self.log: Any = _Log()
        self.handshakes: Any = None
        self.closed_count = 0
        self._to_flush: list[Connection] = []

        def handle(request: Request) -> Any:
            handled(request)
            return filled(response_type(request.api_key, request.api_version))

        apis = {
            key: Api(*known_versions(key), handle, fixed_reader=_fixed_reader(key, side))
            for key in ApiKey
            if not asks or key in guards
        }
        del apis[ApiKey.API_VERSIONS]
        apis = guarded_cluster_actions(apis, cluster_actions(side, config))
        admission = Admission(authentication)
        if asks:
            authorization = Authorization(AuthorizerSettings(), guards, lambda: IMAGE, loop)
            authorization._log = _Quiet()  # type: ignore[assignment]
            admission = Admission(authentication, authorization.admit)
        routes = Routes({**apis, **authentication.apis()}, None, RequestMetrics())
        self.dispatcher = Dispatcher(name, routes, admission, self.fair_queue)

    def flush_soon(self, connection: Connection) -> None:
        if not connection.flush_scheduled:
            connection.flush_scheduled = True
            self.loop.call_soon(connection.flush)

    def connection_closed(self, connection: Connection) -> None:
        self.closed_count += 1

    def take_in(self, connected: Socket, connection: Connection, data: bytes, pieces: int) -> None:
        """Have the connection receive `data`, in so many pieces, and the end after it; until it is closed."""
        loop, descriptor = self.loop, connected.fileno()
        size = max(1, -(-len(data) // pieces))
        for start in range(0, len(data), size):
            connected.come(data[start : start + size])
            self._receive(connected, descriptor)
            if connection.closed:
                break
        loop.run_until_idle(PATIENCE_S)
        connected.ended = True
        self._receive(connected, descriptor)
        loop.run_until_idle(PATIENCE_S)
        if not connection.closed:
            connection.close()
        loop.run_until_idle(0)

    def _receive(self, connected: Socket, descriptor: int) -> None:
        loop = self.loop
        while True:
            reader = loop.readers.get(descriptor)
            if reader is not None:
                reader()
            writer = loop.writers.get(descriptor)
            if writer is not None:
                writer()
            loop.run_until_idle(0.2)
            if not connected.has_more or descriptor not in loop.readers:
                return


def _fixed_reader(api_key: ApiKey, side: Side) -> Any:
    row = ROWS.get(api_key)
    offer = None if row is None else row.offer(side)
    return None if offer is None else offer.fixed_reader


class _Quiet:
    """An audit log that nobody reads."""

    def write(self, *arguments: Any, **details: Any) -> None: ...
