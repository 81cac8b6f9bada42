"""Creation of a client's connections."""

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.user.client.config import ClientConfig


def connected(
    config: ClientConfig, address: tuple[str, int], connect_timeout_s: float | None = None
) -> BlockingChannel:
    """Return a new connection, made within `connect_timeout_s` if given, else `request_timeout_ms`.

    Raises:
        KafkaError: the broker can't be reached, or one side does not authenticate or trust the other.
    """
    return BlockingChannel(
        *address,
        client_id=config.client_id,
        timeout_s=config.request_timeout_ms / 1000,
        connect_timeout_s=connect_timeout_s,
        max_response_bytes=config.max_response_bytes,
        tls=config.tls,
        login=config.login,
    )
