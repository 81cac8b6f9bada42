"""The broker's connection to the controller, which reconnects and is shared by all requests to it.

Requests are pipelined on one connection; the long polls of the metadata follower have another, because
answers come in the order of the requests. Without a connection requests wait for the next one until they time
out. Reconnecting backs off exponentially, as in Kafka's clients (reconnect.backoff.ms,
reconnect.backoff.max.ms).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Self

from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.config import BrokerConfig
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

RECONNECT_BACKOFF: Final = ExponentialBackoff(first_ms=50, max_ms=1_000)
UNANSWERED_BACKOFF: Final = ExponentialBackoff(first_ms=50, max_ms=200)
"""After connections that ended before any answer: the controller's host is there, its leadership near."""
REQUEST_TIMEOUT_MS: Final = 30_000

logger = logging.getLogger(__name__)


class ControllerUnreachableError(KafkaError):
    """The controller did not answer in time; it may or may not have carried out the request."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.request_timed_out, message)


class ControllerLink:
    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        cluster_credentials: ClusterCredentials = NO_CREDENTIALS,
        name: str = "controller",
        may_be_idle: bool = False,
    ) -> None:
        """Connect as `client_id`, with the login and TLS of `cluster_credentials`.

        A connection that may be idle is closed by the controller every connections.max.idle.ms.
        """
        self.host = host
        self.port = port
        self.client_id = client_id
        self._cluster_credentials = cluster_credentials
        self._name = name
        self._may_be_idle = may_be_idle
        self._channel: Channel | None = None
        self._connected: asyncio.Event = asyncio.Event()
        self._has_answered = False
        """Whether a request on this connection was answered."""
        self._lost_s: float | None = None
        self.is_refused = False
        """Whether the last attempt to connect was refused: no process listens there."""
        self._gone = asyncio.Event()
        self._when_connected: list[Callable[[], None]] = []
        self._when_lost: list[Callable[[], None]] = []

    @classmethod
    def of_broker(
        cls,
        address: tuple[str, int],
        node_id: BrokerId,
        config: BrokerConfig,
        secret: ApplicationSecret,
    ) -> Self:
        cluster_credentials = ClusterCredentials.to(config.controller_protocol, secret)
        return cls(*address, f"broker-{node_id}", cluster_credentials=cluster_credentials)

    def sibling(self, client_id: str, name: str) -> "ControllerLink":
        """Return a separate link, for requests that must not wait for this one's answers."""
        return ControllerLink(
            self.host,
            self.port,
            client_id,
            cluster_credentials=self._cluster_credentials,
            name=name,
            may_be_idle=True,
        )

    @property
    def is_connected(self) -> bool:
        return self._channel is not None and not self._channel.closed.done()

    @property
    def unreachable_ms(self) -> int:
        """The time without a connection; 0 while there is one."""
        if self._lost_s is None:
            return 0
        return int((asyncio.get_running_loop().time() - self._lost_s) * 1000)

    def when_connected(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop after every new connection, before requests that wait for one are sent.

        A task that it wakes can have its request be the first of the connection.
        """
        self._when_connected.append(callback)

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop after every lost connection."""
        self._when_lost.append(callback)

    async def gone(self) -> None:
        """Return when the controller refuses connections after it was reachable."""
        await self._gone.wait()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._lost_s = loop.time()
        failures = unanswered = 0
        was_connected = False
        try:
            while True:
                try:
                    channel = await Channel.connect(
                        self.host,
                        self.port,
                        self.client_id,
                        request_timeout_ms=REQUEST_TIMEOUT_MS,
                        login=self._cluster_credentials.login,
                        tls=self._cluster_credentials.tls,
                    )
                except KafkaError as error:
                    self.is_refused = isinstance(error.__cause__, ConnectionRefusedError)
                    if self.is_refused and was_connected:
                        self._gone.set()
                    pause_ms = RECONNECT_BACKOFF.pause_ms(failures)
                    failures += 1
                    logger.info("No connection to the %s, next try in %d ms: %s", self._name, pause_ms, error)
                    await asyncio.sleep(pause_ms / 1000)
                    continue
                failures = 0
                self._channel = channel
                self._has_answered = False
                self._lost_s = None
                self.is_refused = False
                was_connected = True
                self._gone.clear()
                # Waiting requests wake in this order: those of the callbacks are sent first.
                for callback in self._when_connected:
                    callback()
                self._connected.set()
                await asyncio.shield(channel.closed)
                self._channel = None
                self._connected.clear()
                self._lost_s = loop.time()
                for callback in self._when_lost:
                    callback()
                if self._has_answered:
                    unanswered = 0
                is_normal = unanswered > 0 or (self._may_be_idle and channel.closed_idle)
                logger.log(
                    logging.DEBUG if is_normal else logging.WARNING,
                    "The connection to the %s at %s:%d is lost",
                    self._name,
                    self.host,
                    self.port,
                )
                if not self._has_answered:
                    await asyncio.sleep(UNANSWERED_BACKOFF.pause_ms(unanswered) / 1000)
                    unanswered += 1
        finally:
            if self._channel is not None:
                self._channel.close()

    async def request(self, entity: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Send `entity` as soon as there is a connection; return the response of the same version.

        An answer that takes longer than `timeout_ms` ends the connection for all requests, because the
        controller behind it answers none.

        Raises:
            ControllerUnreachableError: no connection within `timeout_ms`, no answer within as long again,
                or the connection was lost before the answer came.
            KafkaError: the answer is malformed.
        """
        name = type(entity).__name__
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise ControllerUnreachableError(
                f"{name} was not sent: no connection to {self.host}:{self.port} within {timeout_ms} ms"
            ) from None
        channel = self._channel
        assert channel is not None, "connected means that there is a channel"
        try:
            answer = await channel.request(entity, timeout_ms)
        except KafkaError as error:
            if error.error_code in (ErrorCode.network_exception, ErrorCode.request_timed_out):
                raise ControllerUnreachableError(f"{name} was not answered: {error.message}") from error
            raise
        self._has_answered = True
        return answer
