"""The blocking client side, for Spark tasks (skeleton, being written)."""

from collections.abc import Mapping
from typing import Any, Self

from sparklog.wire.apis import ApiKey, SupportedVersions


class BlockingChannel:
    """A connection over which requests may be pipelined by `send` and `receive`."""

    versions: Mapping[ApiKey, SupportedVersions] | None

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float = 30.0) -> None:
        """Connect. Raises KafkaError(network_exception)."""
        raise NotImplementedError

    def negotiate(self) -> Mapping[ApiKey, SupportedVersions]:
        """Ask for ApiVersions; return the versions both sides know, and use them in `send`."""
        raise NotImplementedError

    def request(self, entity: Any, timeout_s: float | None = None) -> Any:
        """`send`, then `receive`; only when nothing else is outstanding."""
        raise NotImplementedError

    def send(self, entity: Any, *, expect_response: bool = True) -> None:
        """Write one request; downgraded first when negotiation found only an older version."""
        raise NotImplementedError

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the response of the oldest request without one."""
        raise NotImplementedError

    @property
    def outstanding(self) -> int:
        """How many sent requests still wait for `receive`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the socket; later calls raise network_exception."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
