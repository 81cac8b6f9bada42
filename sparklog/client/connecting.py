"""A client's connections: how each is made, to whatever address."""

from sparklog.client.config import ClientConfig
from sparklog.wire.blocking import BlockingChannel


def connected(config: ClientConfig, address: tuple[str, int]) -> BlockingChannel:
    """Return a new connection.

    Raises:
        KafkaError: there is none to be had, or the two sides do not trust each other, or do not know
            each other.
    """
    return BlockingChannel(
        *address,
        client_id=config.client_id,
        timeout_s=config.request_timeout_ms / 1000,
        max_response_bytes=config.max_response_bytes,
        tls=config.tls,
        login=config.login,
    )
