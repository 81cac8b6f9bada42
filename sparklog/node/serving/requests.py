"""Requests as handlers receive them, and the results that handlers may return.

A handler is called on the loop's thread, once for each request, in the order a connection sent them. One that
can answer at once is a function that returns the response: an entity of any version; a `FixedResponse` to
a `FixedRequest`; a `RawResponse` or `EncodedBody`; `NO_RESPONSE`; any of these as `Throttled`. Any other is a
coroutine that returns it, or that returns another awaitable of it, as a `Deferred`. The listener drives
coroutines itself (`turns`), and not as tasks: code that needs one, like `asyncio.timeout`, is awaited by
`in_task`. When the connection is lost they are closed. Answers leave each connection in the order of its
requests, however they are made.

Handlers answer the errors of single items with the error codes of their response. A KafkaError that escapes
one refuses the request as a whole: with the answer that the row of the table has for that, or by closing the
connection, as bad frames do. Any other exception is a mistake of the handler's: it is logged with its
traceback and closes that connection too.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import Principal
from sparklog.protocol.codec.allowance import USUAL_TIMES
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.fixed.message import FixedReader
from sparklog.protocol.errors import KafkaError


class NoResponse:
    __slots__ = ()


NO_RESPONSE: Final = NoResponse()
"""Returned by a handler whose request has no answer (Produce with acks=0)."""


class Throttled(NamedTuple):
    """A response whose client is throttled for its request."""

    response: Any
    throttle_ms: int


class RespondThenClose(NamedTuple):
    """A response behind which the connection is closed."""

    response: Any
    reason: str
    what: str
    """Reason in the log."""


Response: TypeAlias = Any
"""A kio response entity of any version (sent in the request's version), a `FixedResponse` to a
`FixedRequest`, a `RawResponse`, an `EncodedBody`, `NO_RESPONSE`, or one of these that is `Throttled` or a
`RespondThenClose`."""


class Deferred:
    """A response that comes later, on the loop's thread: a coroutine awaits it without a task or timer."""

    __slots__ = ("_on_complete", "_response", "abandoned", "completed", "on_abandoned")

    def __init__(self, on_abandoned: Callable[[], None] | None = None) -> None:
        self.on_abandoned = on_abandoned
        """Called once, without arguments, if the response loses its receiver before `complete`."""
        self.abandoned = False
        """True once it has no receiver; completing is then allowed and has no effect."""
        self.completed = False
        self._response: Response = None
        self._on_complete: Callable[[Response], None] | None = None

    def complete(self, response: Response) -> None:
        """Give the answer.

        Raises:
            RuntimeError: it was already completed.
        """
        if self.completed:
            raise RuntimeError("a deferred answer was completed twice")
        self.completed = True
        # The exchange refers to this, and this to its callback and the response: a cycle, otherwise, that
        # keeps the files of its records open until garbage is collected.
        on_complete, self._on_complete, self.on_abandoned = self._on_complete, None, None
        if self.abandoned:
            return
        if on_complete is None:
            self._response = response  # completed before the handler returned it
        else:
            on_complete(response)

    def bind(self, on_complete: Callable[[Response], None]) -> None:
        """Call `on_complete` once with the response, at once if it is already there."""
        if self.completed:
            on_complete(self._response)
            self._response = None
        else:
            self._on_complete = on_complete

    def abandon(self) -> None:
        """Record that the response has lost its receiver, mostly with the connection."""
        self._on_complete = None
        if not self.completed and not self.abandoned:
            self.abandoned = True
            on_abandoned, self.on_abandoned = self.on_abandoned, None  # a cycle, as above
            if on_abandoned is not None:
                on_abandoned()

    def expire(self, response: Response) -> None:
        """Complete in place of `complete`, which is then allowed and has no effect."""
        if self.completed or self.abandoned:
            return
        on_complete = self._on_complete
        self.abandon()
        self._response = response
        if on_complete is not None:
            on_complete(response)

    def __await__(self) -> Generator["Deferred", Response, Response]:
        if not self.completed and not self.abandoned:
            try:
                return (yield self)
            except GeneratorExit:
                self.abandon()
                raise
        response, self._response = self._response, None
        return response


class Peer(Protocol):
    """The connection a request came by; the same object for all its requests."""

    peer: str
    """`host:port` of the other side."""
    client_software: tuple[str, str]
    """Name and version of the client, from ApiVersions; empty without one."""
    accepted_ms: int
    """When the connection was accepted, by the loop's clock."""
    principal: Principal | None
    """None until the connection is authenticated."""
    closed: bool

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection is lost, at once if it already is."""

    def note(self, reason: str, what: str) -> None:
        """Log that a request was refused by its response."""


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Request:
    """One request as received, with its properties that the dispatcher knows (`dispatcher`)."""

    __slots__ = (
        "access",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "host",
        "listener_name",
        "principal",
    )

    def __init__(
        self,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
        frame: memoryview,
        connection: Peer,
        listener_name: str,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        """The kio entity of the version that was received, or a `FixedRequest` with the entity's fields."""
        self.frame = frame
        """Header and body as received, without the length. Valid until the handler returns a response, or
        waits without holding the connection (`turns`)."""
        self.connection = connection
        self.listener_name = listener_name
        self.principal = ANONYMOUS
        self.host: str | None = None
        """Client host of a forwarded request; None for one of `connection` itself."""
        self.access: Access | None = None
        """Authorized operations of its principal; None without an authorizer."""


Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


Refusal: TypeAlias = Callable[[Request, KafkaError], Response]
"""Makes an API's response to a request that is refused as a whole."""


class Api(NamedTuple):
    """One row of a listener's table: the versions it answers (inclusive), and the handler."""

    min_version: int
    max_version: int
    handler: Handler
    many: bool = True
    """Whether a request may have more items than are read in one go; otherwise such a one is refused."""
    under: Callable[[], None] | None = None
    """Called before the handler, and whenever its coroutine goes on: it looks at what must hold for the
    answer (a lease), and acts on it."""
    refuse: Refusal | None = None
    """Makes the response to a KafkaError of the handler; None closes the connection instead."""
    memory_times: int = USUAL_TIMES
    """Peak memory of a request and its answer, in multiples of the memory that its items are counted for."""
    fixed_reader: Callable[[int], FixedReader | None] | None = None
    """Returns the reader of a version's requests in their usual shape; None if all are read as entities."""


class Features(NamedTuple):
    """The features in ApiVersions (KIP-584)."""

    supported: Mapping[str, tuple[int, int]]
    """Feature name to the lowest and highest level known here, inclusive."""
    finalized: Mapping[str, int]
    """Feature name to the level the cluster is at."""
    finalized_epoch: int
    """Grows with every change of `finalized`: the offset of the metadata it was read from."""
