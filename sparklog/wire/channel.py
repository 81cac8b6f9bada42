"""The asyncio client side: one connection to a broker or the controller (skeleton, being written)."""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from sparklog.wire.apis import ApiKey, SupportedVersions


class Channel:
    """A connection over which requests are pipelined; answers come in order."""

    closed: asyncio.Future[None]
    """Done when the connection is gone, for whatever reason."""
    versions: Mapping[ApiKey, SupportedVersions] | None
    """What `negotiate` found: usable by both sides; None before."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        client_id: str,
        *,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        max_response_bytes: int = 1 << 30,
    ) -> Self:
        """Connect. Raises KafkaError(network_exception) when refused or too slow."""
        raise NotImplementedError

    def request(self, entity: Any, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send a request entity; await the result for the response entity of the same version.

        After `negotiate`, an entity newer than the other side knows is downgraded first.

        Raises (through the future):
            KafkaError: network_exception (connection lost or closed), request_timed_out, unsupported_version,
                or a response that is malformed.
        """
        raise NotImplementedError

    async def negotiate(self) -> Mapping[ApiKey, SupportedVersions]:
        """Ask for ApiVersions; return what both sides know."""
        raise NotImplementedError

    def close(self) -> None:
        """Close; outstanding requests fail with network_exception."""
        raise NotImplementedError
