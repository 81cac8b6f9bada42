"""The listener of controller and brokers (skeleton, being written)."""

from collections.abc import Callable, Mapping
from typing import Self

from sparklog.wire.apis import ApiKey
from sparklog.wire.requests import (
    NO_RESPONSE,
    Api,
    Deferred,
    Features,
    FileRegion,
    Handler,
    RawResponse,
    Request,
)

__all__ = [
    "NO_RESPONSE",
    "Api",
    "Deferred",
    "Features",
    "FileRegion",
    "Handler",
    "Listener",
    "RawResponse",
    "Request",
]


class Listener:
    """Accepts connections and answers requests on the running asyncio loop."""

    host: str
    port: int

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        apis: Mapping[ApiKey, Api],
        *,
        name: str = "listener",
        features: Callable[[], Features] | None = None,
        max_request_bytes: int = 104_857_600,
        max_connections: int = 2_147_483_647,
        max_outstanding_requests: int = 256,
    ) -> Self:
        """Bind and listen. Port 0 takes a free one; `.port` says which."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop accepting, drop every connection."""
        raise NotImplementedError
