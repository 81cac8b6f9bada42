"""The controller's requests to brokers' own listeners, as one of the cluster's processes: for an orderly
stop.

One connection a broker, made when it is first needed.
"""

from typing import Any

from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.endpoints import Endpoint
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId


class BrokerRequests:
    """The connections; belong to one event loop, and are used by one task."""

    def __init__(self, cluster_credentials: ClusterCredentials, request_timeout_ms: int) -> None:
        self._cluster_credentials = cluster_credentials
        self._request_timeout_ms = request_timeout_ms
        self._channels: dict[BrokerId, tuple[Endpoint, Channel]] = {}

    async def ask(self, broker_id: BrokerId, endpoint: Endpoint, request: Any) -> Any | None:
        """Return the broker's response; None if there is none."""
        try:
            return await (await self._channel(broker_id, endpoint)).request(request)
        except (KafkaError, OSError):
            return None

    async def _channel(self, broker_id: BrokerId, endpoint: Endpoint) -> Channel:
        known = self._channels.get(broker_id)
        if known is not None:
            if known[0] == endpoint and not known[1].closed.done():
                return known[1]
            known[1].close()
        channel = await Channel.connect(
            endpoint.host,
            endpoint.port,
            "controller",
            connect_timeout_ms=self._request_timeout_ms,
            request_timeout_ms=self._request_timeout_ms,
            login=self._cluster_credentials.login,
            tls=self._cluster_credentials.tls,
        )
        self._channels[broker_id] = (endpoint, channel)
        return channel

    def close(self) -> None:
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()
