"""The driver's connections to brokers: to their CONTROLLER listeners, and for an orderly stop to their own.

One connection a broker, made when it is first needed. A request that is not answered in time, or a connection
that is refused, is a `KafkaError`; the next request makes another one.
"""

from collections.abc import Hashable
from typing import Any, Protocol

from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import ClusterCredentials


class ReachableBroker(Protocol):
    """A broker and its address; another address, with the same key, replaces the connection."""

    @property
    def key(self) -> Hashable: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class BrokerChannels:
    """The connections, on one event loop."""

    def __init__(self, request_timeout_ms: int, cluster_credentials: ClusterCredentials) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._cluster_credentials = cluster_credentials
        self._channels: dict[Hashable, tuple[ReachableBroker, Channel]] = {}

    async def request(self, broker: ReachableBroker, entity: Any) -> Any:
        """Send a request to the broker; return its response.

        Raises:
            KafkaError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, or the response is malformed.
        """
        known = self._channels.get(broker.key)
        if known is not None and (known[0] != broker or known[1].closed.done()):
            known[1].close()
            known = None
        if known is None:
            channel = await Channel.connect(
                broker.host,
                broker.port,
                "controller",
                connect_timeout_ms=self._request_timeout_ms,
                request_timeout_ms=self._request_timeout_ms,
                login=self._cluster_credentials.login,
                tls=self._cluster_credentials.tls,
            )
            raced = self._channels.get(broker.key)
            if raced is not None and raced[0] == broker and not raced[1].closed.done():
                channel.close()
                known = raced
            else:
                known = self._channels[broker.key] = (broker, channel)
        return await known[1].request(entity, self._request_timeout_ms)

    def close(self) -> None:
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()
