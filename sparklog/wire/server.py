"""The listener of controller and brokers: accepts connections and answers requests on the asyncio loop.

Order for the caller: build the table of APIs, `await Listener.start(...)` on the loop that shall serve it,
`await close()` on the same loop. ApiVersions is answered here, out of the table. What handlers may return is
in `requests`.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final, Self

from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.api_versions import ApiVersionsHandler
from sparklog.wire.apis import ApiKey, SupportedVersions, known_versions
from sparklog.wire.buffers import BufferPool
from sparklog.wire.connection import Connection, Route
from sparklog.wire.frames import request_codec
from sparklog.wire.requests import (
    NO_RESPONSE,
    Api,
    Deferred,
    Features,
    FileRegion,
    Handler,
    RawResponse,
    Request,
)

__all__ = [
    "NO_RESPONSE",
    "Api",
    "Deferred",
    "Features",
    "FileRegion",
    "Handler",
    "Listener",
    "RawResponse",
    "Request",
]

logger = logging.getLogger(__name__)

_ACCEPTS_PER_TURN: Final = 64
_ACCEPT_RETRY_S: Final = 1.0


class Listener:
    """A bound address, its table of APIs and its connections. Made by `start`."""

    def __init__(
        self,
        listening: socket.socket,
        apis: Mapping[ApiKey, Api],
        *,
        name: str,
        features: Callable[[], Features] | None,
        max_request_bytes: int,
        max_connections: int,
        max_outstanding_requests: int,
        connections_max_idle_ms: int,
        accepting: bool,
    ) -> None:
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.pool = BufferPool()
        self.max_request_bytes = max_request_bytes
        self.max_outstanding_requests = max_outstanding_requests
        self.host, self.port = listening.getsockname()[:2]
        self._max_connections = max_connections
        self._listening = listening
        self._routes = _routes(apis, features)
        self._connections: set[Connection] = set()
        self._to_flush: list[Connection] = []
        self._idle_check_s = connections_max_idle_ms / 2000
        self._timer = self.loop.call_later(self._idle_check_s, self._close_idle)
        self._accepting = False
        if accepting:
            self.accept_connections()

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        apis: Mapping[ApiKey, Api],
        *,
        name: str = "listener",
        features: Callable[[], Features] | None = None,
        max_request_bytes: int = 104_857_600,
        max_connections: int = 2_147_483_647,
        max_outstanding_requests: int = 256,
        connections_max_idle_ms: int = 600_000,
        accepting: bool = True,
    ) -> Self:
        """Bind `host`:`port` (0 takes a free port, see `.port`) and serve `apis` from now on.

        The limits are Kafka's socket.request.max.bytes, max.connections and connections.max.idle.ms;
        `max_outstanding_requests` bounds the unanswered requests of one connection. With `accepting` false
        the address is bound, but connections wait in the kernel's queue until `accept_connections`.

        Raises:
            OSError: the address cannot be resolved or bound.
            ValueError: the table promises a version that cannot be read or written.
        """
        loop = asyncio.get_running_loop()
        resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = resolved[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1024)
            return cls(
                listening,
                apis,
                name=name,
                features=features,
                max_request_bytes=max_request_bytes,
                max_connections=max_connections,
                max_outstanding_requests=max_outstanding_requests,
                connections_max_idle_ms=connections_max_idle_ms,
                accepting=accepting,
            )
        except BaseException:
            listening.close()
            raise

    def accept_connections(self) -> None:
        """Serve connections from now on; calling again has no effect."""
        if not self._accepting:
            self._accepting = True
            self.loop.add_reader(self._listening.fileno(), self._accept)

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def close(self) -> None:
        """Stop accepting, send what the sockets take of the answers there are, and close every connection."""
        self._timer.cancel()
        if self._listening.fileno() >= 0:
            self.loop.remove_reader(self._listening.fileno())
            self._listening.close()
        for connection in list(self._connections):
            connection.flush()
            connection.close()
        await asyncio.sleep(0)  # cancelled coroutines end before this returns

    def route(self, api_key: int, api_version: int) -> Route:
        """Return who handles an API version.

        Raises:
            KafkaError: unsupported_version.
        """
        try:
            return self._routes[api_key, api_version]
        except KeyError:
            if api_key == ApiKey.API_VERSIONS:
                return self._routes[api_key, -1]
            raise KafkaError(
                ErrorCode.unsupported_version, f"API key {api_key} version {api_version} is not served here"
            ) from None

    def flush_soon(self, connection: Connection) -> None:
        """Flush `connection` on the next turn, with all others that were answered in this one."""
        if connection.flush_scheduled:
            return
        connection.flush_scheduled = True
        if not self._to_flush:
            self.loop.call_soon(self._flush_all)
        self._to_flush.append(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def _flush_all(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors, mostly. The kernel keeps the connection; look again later, because
                # the listening socket stays readable and would spin the loop.
                logger.error("%s: cannot accept: %s", self.name, error)
                self.loop.remove_reader(self._listening.fileno())
                self.loop.call_later(_ACCEPT_RETRY_S, self._accept_again)
                return
            peer = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
            if len(self._connections) >= self._max_connections:
                logger.warning(
                    "%s: refusing %s: max.connections=%d reached", self.name, peer, self._max_connections
                )
                accepted.close()
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.add(Connection(self, accepted, peer))

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            self.loop.add_reader(self._listening.fileno(), self._accept)

    def _close_idle(self) -> None:
        for connection in list(self._connections):
            if connection.active:
                connection.active = False
            elif connection.idle:
                logger.info("%s: closing %s, idle for connections.max.idle.ms", self.name, connection.peer)
                connection.close()
        self._timer = self.loop.call_later(self._idle_check_s, self._close_idle)


def _routes(
    apis: Mapping[ApiKey, Api], features: Callable[[], Features] | None
) -> dict[tuple[int, int], Route]:
    routes: dict[tuple[int, int], Route] = {}
    for api_key, api in apis.items():
        known = known_versions(api_key)
        if not known.min_version <= api.min_version <= api.max_version <= known.max_version:
            raise ValueError(
                f"{api_key.name} v{api.min_version} to v{api.max_version}: kio has v{known.min_version} to"
                f" v{known.max_version}"
            )
        for version in range(api.min_version, api.max_version + 1):
            routes[api_key, version] = Route(api_key, request_codec(api_key, version), api.handler)
    served = {key: SupportedVersions(api.min_version, api.max_version) for key, api in apis.items()}
    api_versions = ApiVersionsHandler(served, features)
    supported = api_versions.supported
    for version in range(supported.min_version, supported.max_version + 1):
        codec = request_codec(ApiKey.API_VERSIONS, version)
        routes[ApiKey.API_VERSIONS, version] = Route(ApiKey.API_VERSIONS, codec, api_versions.handle)
    codec = request_codec(ApiKey.API_VERSIONS, 0)
    routes[ApiKey.API_VERSIONS, -1] = Route(
        ApiKey.API_VERSIONS, codec, api_versions.handle_unsupported_version
    )
    return routes
