"""Connections from this broker to the others, for other requests than followers' fetches.

One for each broker and purpose, opened on first use and again after it was lost or the broker has moved.
Requests are pipelined and answered in order, so a sender that must not wait for another's answers has
connections of its own (Kafka's AddPartitionsToTxnManager and TransactionMarkerChannelManager have a network
client each). Requests to this very broker go through its listener, too.

A failed request is not sent again here: only the sender knows whether it still stands, and when to retry.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.endpoints import Endpoint
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

_CONNECT_TIMEOUT_MS: Final = 10_000


class BrokerConnections:
    def __init__(
        self,
        client_id: str,
        endpoint_of: Callable[[BrokerId], Endpoint | None],
        request_timeout_ms: int,
        cluster_credentials: ClusterCredentials = NO_CREDENTIALS,
    ) -> None:
        """Connect as `client_id`; `endpoint_of` returns a broker's current endpoint, None if unknown.

        `cluster_credentials` are the login and TLS of its connections.
        """
        self._cluster_credentials = cluster_credentials
        self._client_id = client_id
        self._endpoint_of = endpoint_of
        self._request_timeout_ms = request_timeout_ms
        self._connections: dict[BrokerId, tuple[Endpoint, asyncio.Task[Channel]]] = {}
        self._closed = False

    async def request(self, broker_id: BrokerId, entity: Any) -> Any:
        """Send a request to a broker; return the response, of the request's version.

        Raises:
            KafkaError: NETWORK_EXCEPTION (the broker is unreachable or unknown), REQUEST_TIMED_OUT, or the
                answer is malformed. The broker may have carried out the request.
        """
        connecting = self._connection(broker_id)
        if not connecting.done():
            await asyncio.wait([connecting])  # shared with other requests: a cancelled one must not cancel it
        if connecting.cancelled():
            raise KafkaError(
                ErrorCode.network_exception, f"broker {broker_id} has moved, or is no longer in use"
            )
        channel = connecting.result()
        return await channel.request(entity, self._request_timeout_ms)

    def _connection(self, broker_id: BrokerId) -> "asyncio.Task[Channel]":
        endpoint = self._endpoint_of(broker_id)
        if endpoint is None or self._closed:
            raise KafkaError(ErrorCode.network_exception, f"broker {broker_id} has no address")
        known = self._connections.get(broker_id)
        if known is not None:
            if known[0] == endpoint and _may_serve(known[1]):
                return known[1]
            _close(known[1])
        connecting = asyncio.get_running_loop().create_task(
            Channel.connect(
                endpoint.host,
                endpoint.port,
                self._client_id,
                connect_timeout_ms=min(_CONNECT_TIMEOUT_MS, self._request_timeout_ms),
                request_timeout_ms=self._request_timeout_ms,
                login=self._cluster_credentials.login,
                tls=self._cluster_credentials.tls,
            )
        )
        self._connections[broker_id] = endpoint, connecting
        return connecting

    async def close(self) -> None:
        """Close all connections for good; requests without an answer fail."""
        self._closed = True
        connections, self._connections = list(self._connections.values()), {}
        for _, connecting in connections:
            _close(connecting)
        await asyncio.gather(*(connecting for _, connecting in connections), return_exceptions=True)


def _may_serve(connecting: "asyncio.Task[Channel]") -> bool:
    """Whether the connection is being opened or is open."""
    if not connecting.done():
        return True
    if connecting.cancelled() or connecting.exception() is not None:
        return False
    return not connecting.result().closed.done()


def _close(connecting: "asyncio.Task[Channel]") -> None:
    connecting.cancel()
    if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
