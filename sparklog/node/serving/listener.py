"""The listener of controller and brokers: accepts connections and answers requests on the asyncio loop.

Order for the caller: build the table of APIs, `await Listener.start(...)` on the loop that serves it,
`await close()` on the same loop. `dispatcher` has the way of a request, `requests` the results of handlers.
"""

import asyncio
import heapq
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Self

from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.limits.connection_quotas import ConnectionQuotas, ListenerQuota
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.limits.rate_limited_log import ANY_PEER, RateLimitedLog
from sparklog.node.limits.request_memory import RequestMemory
from sparklog.node.limits.reserved_connections import ReservedConnections
from sparklog.node.loop.turn_loop import at_turn_end
from sparklog.node.loop.whole_seconds import whole_second_after
from sparklog.node.metrics import network
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample
from sparklog.node.serving.admission import OPEN, Admission
from sparklog.node.serving.buffers import BufferPool
from sparklog.node.serving.connection import Connection
from sparklog.node.serving.dispatcher import Dispatcher
from sparklog.node.serving.listening import listening_socket
from sparklog.node.serving.request_metrics import RequestMetrics
from sparklog.node.serving.requests import Api, Features
from sparklog.node.serving.routes import Routes
from sparklog.node.serving.socket_settings import SocketSettings
from sparklog.node.serving.tls.tls_connection import TlsConnection
from sparklog.node.serving.tls.tls_handshakes import ServerTls, TlsHandshakes
from sparklog.node.serving.turns import FairQueue
from sparklog.protocol.codec.apis import ApiKey

logger = logging.getLogger(__name__)

_ACCEPTS_PER_TURN: Final = 64
_ACCEPT_RETRY_S: Final = 1.0
_UNAUTHENTICATED_BYTES: Final = 32 << 20
_MAX_HELD_BACK: Final = 100
_TIME_TO_LOG_IN: Final = "the time to log in"
_MAPPED: Final = "::ffff:"
"""Prefix of IPv4 addresses among those of IPv6."""
_IDLE_CHECKS: Final = 4
"""Number of checks for idle connections within connections.max.idle.ms."""


class ClusterConnections(Enum):
    """The share of a listener's connections that driver and brokers have."""

    NONE = auto()
    RESERVED = auto()
    """Beyond the bounds the listener takes connections of driver and brokers alone."""
    ONLY = auto()
    """The listener takes driver and brokers alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerIdentity:
    name: str = "listener"
    """For logs and metrics."""
    listener_name: str | None = None
    """Kafka's name: clients receive the addresses of the listeners that have it. None: `name`."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: ServerTls | None = None
    """Connections begin with a TLS handshake; None for plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    apis: Mapping[ApiKey, Api]
    features: Callable[[], Features] | None = None
    admission: Admission = OPEN
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    """Metrics of requests; all listeners of a process may share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerBounds:
    """The bounds of a listener's connections. Those of a broker share `quotas` and `memory`."""

    settings: SocketSettings = field(default_factory=SocketSettings)
    quotas: ConnectionQuotas = field(default_factory=ConnectionQuotas)
    own_quota: ListenerQuota = field(default_factory=ListenerQuota)
    memory: RequestMemory | None = None
    """Memory for requests; None: no bound."""
    reserved: bool = False
    """Excepted from the bound on all connections, and left more of the descriptors."""
    max_outstanding_requests: int = 256
    """Unanswered requests of one connection."""


class Listener:
    """A bound address, its table of APIs and its connections. Made by `start`."""

    def __init__(
        self,
        listening: socket.socket,
        service: Service,
        identity: ListenerIdentity,
        bounds: ListenerBounds,
        cluster_connections: ClusterConnections,
        *,
        accepting: bool,
    ) -> None:
        settings, admission, metrics = bounds.settings, service.admission, service.metrics
        self.name = identity.name
        self.listener_name = identity.listener_name or identity.name
        self.security_protocol = identity.security_protocol
        self.loop = asyncio.get_running_loop()
        self.pool = BufferPool()
        self.log = RateLimitedLog(logger, self.loop)
        self.fair_queue = FairQueue(self.loop)
        self.authentication = admission.authentication
        self.max_request_bytes = settings.request_max_bytes
        self.max_outstanding_requests = bounds.max_outstanding_requests
        self.host, self.port = listening.getsockname()[:2]
        self.memory = bounds.memory
        self.unauthenticated_memory = RequestMemory(_UNAUTHENTICATED_BYTES, makes_room=True)
        """For requests in pieces of all unauthenticated connections."""
        self._quotas = bounds.quotas
        self._own_quota = bounds.own_quota
        self._reserved = bounds.reserved
        self._only_cluster_connections = cluster_connections is ClusterConnections.ONLY
        self._reserved_connections = (
            None if cluster_connections is ClusterConnections.NONE else ReservedConnections(self.loop)
        )
        self._listening = listening
        self.metrics = metrics
        self._routes = Routes({**service.apis, **admission.authentication.apis()}, service.features, metrics)
        self.dispatcher = Dispatcher(self.listener_name, self._routes, admission, self.fair_queue)
        self.handshakes = None if identity.tls is None else TlsHandshakes(self.loop, identity.tls)
        """None for plain text; its `tls` may be replaced while connections are open."""
        self._connections: dict[Connection, str] = {}
        """With the address under which each one is counted."""
        self._idle_since: dict[Connection, float] = {}
        """Last activity seen of each connection (seconds of the loop's clock)."""
        self._held_back: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections of addresses that make too many, until they are closed."""
        self._to_flush: list[Connection] = []
        self._call_at_turn_end = at_turn_end(self.loop)
        self._timer: asyncio.TimerHandle | None = None
        if settings.connections_max_idle_ms is not None:
            max_idle_s = settings.connections_max_idle_ms / 1000
            self._timer = self.loop.call_later(max_idle_s / _IDLE_CHECKS, self._close_idle, max_idle_s)
        self._descriptors_timer: asyncio.TimerHandle | None = None
        self._accepting = False
        self.accepted_count = self.expired_count = self.refused_count = 0
        """Connections that were accepted, closed for being idle, and refused."""
        self.authentication.start()
        if accepting:
            self.accept_connections()

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        service: Service,
        identity: ListenerIdentity | None = None,
        bounds: ListenerBounds | None = None,
        *,
        cluster_connections: ClusterConnections = ClusterConnections.NONE,
        accepting: bool = True,
        listening: socket.socket | None = None,
    ) -> Self:
        """Bind `host`:`port` (0 takes a free port, see `.port`) and serve from now on.

        A socket that is `listening` already is taken over instead. With `accepting` false the address is
        bound, but connections wait in the kernel's queue until `accept_connections`.

        Raises:
            OSError: the address cannot be resolved or bound.
            ValueError: the table promises a version that cannot be read or written.
        """
        identity, bounds = identity or ListenerIdentity(), bounds or ListenerBounds()
        if listening is None:
            listening = await asyncio.to_thread(listening_socket, host, port, bounds.settings)
        try:
            return cls(listening, service, identity, bounds, cluster_connections, accepting=accepting)
        except BaseException:
            listening.close()
            raise

    def accept_connections(self) -> None:
        """Accept connections from now on; calling again has no effect."""
        if not self._accepting:
            self._accepting = True
            if self._quotas.descriptors is not None:
                self._keep_descriptors(self._quotas.descriptors)
            self.loop.add_reader(self._listening.fileno(), self._accept)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield metrics of its connections; a source of a registry."""
        open_count = len(self._connections)
        yield Sample(network.CONNECTION_COUNT.of(listener=self.name), Kind.GAUGE, open_count)
        for metric, count in (
            (network.CONNECTION_CREATIONS, self.accepted_count),
            (network.CONNECTION_CLOSES, self.accepted_count - open_count),
            (network.EXPIRED_CONNECTIONS, self.expired_count),
            (network.REFUSED_CONNECTIONS, self.refused_count),
        ):
            yield Sample(metric.of(listener=self.name), Kind.METER, count)
        if self.handshakes is not None:
            for metric, count in (
                (network.SUCCESSFUL_AUTHENTICATIONS, self.handshakes.completed_count),
                (network.FAILED_AUTHENTICATIONS, self.handshakes.failed_count),
            ):
                yield Sample(metric.of(listener=self.name), Kind.METER, count)

    async def close(self) -> None:
        """Stop accepting, send complete responses without waiting, and close every connection."""
        for timer in (self._timer, self._descriptors_timer):
            if timer is not None:
                timer.cancel()
        if self._listening.fileno() >= 0:
            self.loop.remove_reader(self._listening.fileno())
            self._listening.close()
        for held_back, timer in self._held_back.items():
            timer.cancel()
            held_back.close()
        self._held_back.clear()
        if self._reserved_connections is not None:
            self._reserved_connections.close()
        for connection in list(self._connections):
            connection.flush()
            connection.close()
        if self.handshakes is not None:
            self.handshakes.close()
        self.log.close()
        await self.authentication.close()
        await asyncio.sleep(0)  # cancelled coroutines end before this returns

    async def load(self) -> None:
        """Load the schemas of all versions, a few ms at a time, so that later requests wait for none."""
        await self._routes.load()

    def flush_soon(self, connection: Connection) -> None:
        """Flush `connection` at the end of this turn, with all others that were answered in it."""
        if connection.flush_scheduled:
            return
        connection.flush_scheduled = True
        if not self._to_flush:
            self._call_at_turn_end(self._flush_all)
        self._to_flush.append(connection)

    def connection_closed(self, connection: Connection) -> None:
        address = self._connections.pop(connection, None)
        if address is not None:
            self._idle_since.pop(connection, None)
            self._quotas.closed(address)

    def _flush_all(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, (host, port, *_) = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors, mostly. The kernel keeps the connection; look again later, because
                # the listening socket stays readable and would spin the loop.
                self.log.write(
                    logging.ERROR, ANY_PEER, "cannot accept", f"{self.name}: cannot accept: {error}"
                )
                self._stop_accepting(_ACCEPT_RETRY_S)
                return
            # Of a listener of IPv6 that takes IPv4, too: the address that the configuration and quotas have.
            address = host.removeprefix(_MAPPED) if "." in host else host
            peer = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            exhausted = self._own_quota.exhausted(len(self._connections))
            if exhausted is None:
                exhausted = self._quotas.exhausted(address, reserved=self._reserved)
            if exhausted is not None and self._reserved_connections is None:
                self.log.write(
                    logging.WARNING,
                    address,
                    exhausted,
                    f"{self.name}: refusing {peer}: {exhausted} reached",
                )
                accepted.close()
                self.refused_count += 1
                continue
            now_ms = int(self.loop.time() * 1000)
            held_back_ms = self._quotas.held_back_ms(address, now_ms)
            if held_back_ms:
                self._hold_back(accepted, held_back_ms)
                self.refused_count += 1
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted_count += 1
            pause_ms = max(
                self._own_quota.opened(now_ms),
                self._quotas.opened(address, now_ms, reserved=self._reserved),
            )
            connection = self._connection(accepted, peer)
            self._connections[connection] = address
            if self._reserved_connections is not None and (
                exhausted is not None or self._only_cluster_connections
            ):
                self._reserved_connections.admit(connection, exhausted or _TIME_TO_LOG_IN)
            if pause_ms:
                self._stop_accepting(pause_ms / 1000)
                return

    def _connection(self, accepted: socket.socket, peer: str) -> Connection:
        if self.handshakes is None:
            return Connection(self, accepted, peer)
        return TlsConnection(self, accepted, peer, self.handshakes)

    def _stop_accepting(self, duration_s: float) -> None:
        """Leave connections in the kernel's queue for a time."""
        self.loop.remove_reader(self._listening.fileno())
        self.loop.call_later(duration_s, self._accept_again)

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            self.loop.add_reader(self._listening.fileno(), self._accept)

    def _hold_back(self, accepted: socket.socket, held_back_ms: int) -> None:
        """Close a connection later, without reading from it; at once if many are held back."""
        if len(self._held_back) >= _MAX_HELD_BACK:
            accepted.close()
            return

        def close() -> None:
            del self._held_back[accepted]
            accepted.close()

        self._held_back[accepted] = self.loop.call_later(held_back_ms / 1000, close)

    def _keep_descriptors(self, descriptors: DescriptorBudget) -> None:
        descriptors.measure()
        if descriptors.excess and not self._reserved:
            self._note_activity()
            idle = (connection for connection in self._connections if connection.idle)
            # First those that have never asked for anything, then the least recently active.
            for connection in heapq.nsmallest(
                descriptors.excess, idle, key=lambda each: (each.has_asked, self._idle_since[each])
            ):
                self.log.write(
                    logging.WARNING,
                    self._connections[connection],
                    "descriptors",
                    f"{self.name}: closing {connection.peer}, which is idle: files need its descriptor "
                    f"(RLIMIT_NOFILE={descriptors.limit})",
                )
                connection.close()
        self._descriptors_timer = self.loop.call_at(
            whole_second_after(self.loop.time()), self._keep_descriptors, descriptors
        )

    def _note_activity(self) -> None:
        now_s = self.loop.time()
        for connection in self._connections:
            if connection.active or not connection.idle:
                connection.active = False
                self._idle_since[connection] = now_s

    def _close_idle(self, max_idle_s: float) -> None:
        self._note_activity()
        now_s = self.loop.time()
        for connection in list(self._connections):
            if now_s - self._idle_since.get(connection, now_s) >= max_idle_s:
                self.log.write(
                    logging.INFO,
                    self._connections[connection],
                    "idle",
                    f"{self.name}: closing {connection.peer}, idle for connections.max.idle.ms",
                )
                connection.close()
                self.expired_count += 1
        self._timer = self.loop.call_later(max_idle_s / _IDLE_CHECKS, self._close_idle, max_idle_s)
