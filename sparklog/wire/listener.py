"""The listener of controller and brokers: accepts connections and answers requests on the asyncio loop.

Order for the caller: build the table of APIs, `await Listener.start(...)` on the loop that shall serve it,
`await close()` on the same loop. What becomes of a request is in `dispatcher`, what handlers may return in
`requests`.
"""

import asyncio
import heapq
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

from sparklog.endpoints import SecurityProtocol
from sparklog.metrics import network
from sparklog.metrics.names import Kind
from sparklog.metrics.registry import Sample
from sparklog.wire.admission import OPEN, Admission
from sparklog.wire.apis import ApiKey
from sparklog.wire.buffers import BufferPool
from sparklog.wire.connection import Connection
from sparklog.wire.connection_quotas import ConnectionQuotas, ListenerQuota
from sparklog.wire.descriptors import MEASURE_INTERVAL_S, DescriptorBudget
from sparklog.wire.dispatcher import Dispatcher
from sparklog.wire.inside_reserve import InsideReserve
from sparklog.wire.listening import listening_socket
from sparklog.wire.rate_limited_log import ANY_PEER, RateLimitedLog
from sparklog.wire.request_memory import RequestMemory
from sparklog.wire.request_metrics import RequestMetrics
from sparklog.wire.requests import Api, Features
from sparklog.wire.routes import Routes
from sparklog.wire.socket_settings import SocketSettings
from sparklog.wire.tls_connection import TlsConnection
from sparklog.wire.tls_handshakes import ServerTls, TlsHandshakes
from sparklog.wire.turns import Turns

logger = logging.getLogger(__name__)

_ACCEPTS_PER_TURN: Final = 64
_ACCEPT_RETRY_S: Final = 1.0
_STRANGERS_BYTES: Final = 32 << 20
_MAX_HELD_BACK: Final = 100
_TIME_TO_LOG_IN: Final = "the time to log in"
_MAPPED: Final = "::ffff:"
"""With which an address of IPv4 begins among those of IPv6."""
_IDLE_CHECKS: Final = 4
"""How often idle connections are looked for within connections.max.idle.ms."""


class Listener:
    """A bound address, its table of APIs and its connections. Made by `start`."""

    def __init__(
        self,
        listening: socket.socket,
        apis: Mapping[ApiKey, Api],
        *,
        name: str,
        listener_name: str,
        security_protocol: SecurityProtocol,
        features: Callable[[], Features] | None,
        admission: Admission,
        settings: SocketSettings,
        quotas: ConnectionQuotas,
        own_quota: ListenerQuota,
        metrics: RequestMetrics,
        memory: RequestMemory | None,
        reserved: bool,
        max_outstanding_requests: int,
        accepting: bool,
        tls: ServerTls | None,
        keeps_room_inside: bool,
        only_inside: bool,
    ) -> None:
        self.name = name
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.loop = asyncio.get_running_loop()
        self.pool = BufferPool()
        self.log = RateLimitedLog(logger, self.loop)
        self.turns = Turns(self.loop)
        self.authentication = admission.authentication
        self.max_request_bytes = settings.request_max_bytes
        self.max_outstanding_requests = max_outstanding_requests
        self.host, self.port = listening.getsockname()[:2]
        self.memory = memory
        self.strangers_memory = RequestMemory(_STRANGERS_BYTES, makes_room=True)
        """For the requests, in pieces, of all who have not said who they are."""
        self._quotas = quotas
        self._own_quota = own_quota
        self._reserved = reserved
        self._only_inside = only_inside
        self._inside_reserve = InsideReserve(self.loop) if keeps_room_inside or only_inside else None
        self._listening = listening
        self.metrics = metrics
        """What the requests of each API have cost."""
        self._routes = Routes({**apis, **admission.authentication.apis()}, features, metrics)
        self.dispatcher = Dispatcher(listener_name, self._routes, admission, self.turns)
        self.handshakes = None if tls is None else TlsHandshakes(self.loop, tls)
        """Of TLS; what connections are shown may be replaced there."""
        self._connections: dict[Connection, str] = {}
        """With the address each one is counted under."""
        self._idle_since: dict[Connection, float] = {}
        """When connections were last seen to have had something to do (seconds of the loop's clock)."""
        self._held_back: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections of addresses that make too many, until they are closed."""
        self._to_flush: list[Connection] = []
        self._timer: asyncio.TimerHandle | None = None
        if settings.connections_max_idle_ms is not None:
            max_idle_s = settings.connections_max_idle_ms / 1000
            self._timer = self.loop.call_later(max_idle_s / _IDLE_CHECKS, self._close_idle, max_idle_s)
        self._descriptors_timer: asyncio.TimerHandle | None = None
        self._accepting = False
        self.accepted_count = self.expired_count = self.refused_count = 0
        """Connections that were taken, that were closed because they were idle, that were refused."""
        self.authentication.start()
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
        listener_name: str | None = None,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        features: Callable[[], Features] | None = None,
        admission: Admission = OPEN,
        settings: SocketSettings | None = None,
        quotas: ConnectionQuotas | None = None,
        own_quota: ListenerQuota | None = None,
        metrics: RequestMetrics | None = None,
        memory: RequestMemory | None = None,
        reserved: bool = False,
        max_outstanding_requests: int = 256,
        accepting: bool = True,
        tls: ServerTls | None = None,
        keeps_room_inside: bool = False,
        only_inside: bool = False,
        listening: socket.socket | None = None,
    ) -> Self:
        """Bind `host`:`port` (0 takes a free port, see `.port`) and serve `apis` from now on.

        A socket that is `listening` already is taken over instead.

        `name` is for logs and metrics; `listener_name`, the same if not given, is Kafka's: clients are told
        the addresses of the listeners that have it.
        The listeners of a broker share their `quotas` and `memory` (none: no bound), and close at once what
        goes beyond the former, or beyond their `own_quota`; `reserved` excepts one from the bound on all
        connections, and leaves it more of the descriptors. What requests cost is counted in `metrics`, which
        all listeners of a process may share.
        `max_outstanding_requests` bounds the unanswered requests of one connection. With `accepting` false
        the address is bound, but connections wait in the kernel's queue until `accept_connections`. With
        `tls` connections begin with a handshake. One that `keeps_room_inside` takes more than it may, of
        driver and brokers alone; one that is `only_inside` takes nobody else in any case.

        Raises:
            OSError: the address cannot be resolved or bound.
            ValueError: the table promises a version that cannot be read or written.
        """
        settings = settings or SocketSettings()
        if listening is None:
            listening = await asyncio.to_thread(listening_socket, host, port, settings)
        try:
            return cls(
                listening,
                apis,
                name=name,
                listener_name=listener_name or name,
                security_protocol=security_protocol,
                features=features,
                admission=admission,
                settings=settings,
                quotas=quotas or ConnectionQuotas(),
                own_quota=own_quota or ListenerQuota(),
                metrics=metrics or RequestMetrics(),
                memory=memory,
                reserved=reserved,
                max_outstanding_requests=max_outstanding_requests,
                accepting=accepting,
                tls=tls,
                keeps_room_inside=keeps_room_inside,
                only_inside=only_inside,
            )
        except BaseException:
            listening.close()
            raise

    def accept_connections(self) -> None:
        """Serve connections from now on; calling again has no effect."""
        if not self._accepting:
            self._accepting = True
            if self._quotas.descriptors is not None:
                self._keep_descriptors(self._quotas.descriptors)
            self.loop.add_reader(self._listening.fileno(), self._accept)

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield what there is to tell of its connections; a source of a registry."""
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
        """Stop accepting, send what the sockets take of the answers there are, and close every connection."""
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
        if self._inside_reserve is not None:
            self._inside_reserve.close()
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
        """Flush `connection` on the next turn, with all others that were answered in this one."""
        if connection.flush_scheduled:
            return
        connection.flush_scheduled = True
        if not self._to_flush:
            self.loop.call_soon(self._flush_all)
        self._to_flush.append(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection."""
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
            if exhausted is not None and self._inside_reserve is None:
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
            if self._inside_reserve is not None and (exhausted is not None or self._only_inside):
                self._inside_reserve.admit(connection, exhausted or _TIME_TO_LOG_IN)
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
        """Close a connection later, without having looked at it; at once if there are many."""
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
        self._descriptors_timer = self.loop.call_later(
            MEASURE_INTERVAL_S, self._keep_descriptors, descriptors
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
