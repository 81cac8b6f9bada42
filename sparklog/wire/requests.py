"""What a listener hands to a handler, and what a handler may answer with."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from sparklog.wire.apis import ApiKey


@runtime_checkable
class FileRegion(Protocol):
    """Bytes of a file that may stand in a response wherever kio takes `records`; they leave by sendfile."""

    @property
    def position(self) -> int:
        """Where in the file the region starts, in bytes."""

    @property
    def length(self) -> int:
        """How many bytes the region has."""

    def __len__(self) -> int: ...

    def fileno(self) -> int:
        """Return the descriptor of the open file."""


class NoResponse:
    """The type of `NO_RESPONSE`."""


NO_RESPONSE: Final = NoResponse()
"""Returned by a handler whose request has no answer (Produce with acks=0)."""


class RawResponse(NamedTuple):
    """A response header and body, ready made, without the length in front (what an Envelope brought back)."""

    frame: bytes


Response: TypeAlias = Any
"""A kio response entity of any version (sent in the request's version), a `RawResponse`, or `NO_RESPONSE`."""


class Deferred:
    """An answer that comes later, on the loop's thread, without a task waiting for it."""

    def __init__(self) -> None:
        self.on_abandoned: Callable[[], None] | None = None
        """Called once, without arguments, when the connection is lost before `complete`."""
        self.abandoned = False
        """True from the moment the connection is lost; completing is then allowed and has no effect."""

    def complete(self, response: Response) -> None:
        """Give the answer. It leaves when every earlier answer of the connection has left.

        Raises:
            RuntimeError: it was already completed.
        """
        raise NotImplementedError


class Peer(Protocol):
    """The connection a request came by; the same object for all its requests."""

    peer: str
    """`host:port` of the other side."""
    closed: bool

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the connection is lost."""


class Request:
    """One request as it was received."""

    __slots__ = ("api_key", "api_version", "body", "client_id", "connection", "correlation_id", "frame")

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """The kio entity, of the version that was received."""
    frame: memoryview
    """Header and body as received, without the length; valid only until the handler returns."""
    connection: Peer


Handler: TypeAlias = Callable[[Request], Response | Deferred | Awaitable[Response]]


class Api(NamedTuple):
    """One row of a listener's table: the versions it answers (inclusive), and who answers."""

    min_version: int
    max_version: int
    handler: Handler


class Features(NamedTuple):
    """What ApiVersions tells about features (KIP-584)."""

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, int]
    finalized_epoch: int
