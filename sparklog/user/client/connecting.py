"""Creation of a client's connections."""

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.user.client.config import ClientConfig


def connected(config: ClientConfig, address: tuple[str, int]) -> BlockingChannel:
    """Return a new connection.

    Raises:
        KafkaError: the broker can't be reached, or one side does not authenticate or trust the other.
    """
    return BlockingChannel(
        *address,
        client_id=config.client_id,
        timeout_s=config.request_timeout_ms / 1000,
        max_response_bytes=config.max_response_bytes,
        tls=config.tls,
        login=config.login,
    )
