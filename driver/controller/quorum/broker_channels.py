"""The driver's connections to the brokers that have announced themselves: to their CONTROLLER listeners.

One connection a broker, made when it is first needed. A request that is not answered in time, or a connection
that is refused, is a `KafkaError`; the broker is taken to be gone until it announces itself again.
"""

from typing import Any

from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker
from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.metadata_log.machine.voter_set import VoterKey


class BrokerChannels:
    """The connections, on one event loop."""

    def __init__(self, request_timeout_ms: int, cluster_credentials: ClusterCredentials) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._cluster_credentials = cluster_credentials
        self._channels: dict[VoterKey, tuple[AnnouncedBroker, Channel]] = {}

    async def request(self, broker: AnnouncedBroker, entity: Any) -> Any:
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
