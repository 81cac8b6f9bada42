"""A request on the way to its answer: what the dispatcher and a connection know of it together."""

from collections.abc import Awaitable
from datetime import timedelta
from time import perf_counter
from typing import Any, Protocol

from sparklog.node.serving.admission import Meter
from sparklog.node.serving.machine.authenticator import Authenticator
from sparklog.node.serving.requests import Peer, Request
from sparklog.node.serving.routes import Route
from sparklog.node.serving.throttling import NO_THROTTLE
from sparklog.node.serving.turns import CoroutineDriver
from sparklog.protocol.codec.encoder import Chunk


class Answering(Peer, Protocol):
    """What the dispatcher needs of a connection."""

    authenticator: Authenticator
    """Finds out who is at the other end."""
    share_ends_s: float
    """Until when this turn may be worked for it, by the performance counter."""
    holds: int
    """How often it is held: nothing more is read from it then."""

    def expect(self, exchange: "Exchange") -> None:
        """Keep a place for the answer, behind those of earlier requests."""

    def answered(self) -> None:
        """Send what has its answer, up to the first that has none."""

    def hold(self) -> None:
        """Read nothing more, until `release` was called as often."""

    def release(self) -> None:
        """Go on reading in a later turn."""

    def mute(self, duration_ms: int) -> None:
        """Read nothing more for a time."""

    def close(self) -> None:
        """Close; calling again has no effect."""

    def refuse(self, reason: str, what: str) -> None:
        """Send what was asked before, and close, because of what the other side sent."""

    def fail(self, reason: str, what: str, error: BaseException) -> None:
        """Send what was asked before, and close, because of a mistake here."""


class Answers(Protocol):
    """What an exchange needs of the dispatcher."""

    def finished(self, exchange: "Exchange", result: Any) -> Awaitable[Any] | None:
        """Answer with what the request's coroutine has returned, or return what is to be awaited yet."""

    def failed(self, exchange: "Exchange", error: BaseException) -> None:
        """Refuse the request, or close its connection."""


class Exchange:
    """One request on the way to its answer."""

    __slots__ = (
        "_answers",
        "answered_s",
        "chunks",
        "connection",
        "correlation_id",
        "driver",
        "frame",
        "holds",
        "holds_until_answered",
        "local_s",
        "meter",
        "metrics",
        "received_s",
        "request",
        "request_bytes",
        "resumed_s",
        "route",
        "throttle_time",
    )

    def __init__(
        self, answers: Answers, connection: Answering, route: Route, request: Request, received_s: float
    ) -> None:
        self._answers = answers
        self.connection = connection
        self.route = route
        self.request: Request | None = request
        """None once the request waits, as what is large in it need not; but kept for an API's refusal."""
        self.frame = request.frame
        self.correlation_id = request.correlation_id
        self.meter: Meter | None = None
        self.throttle_time = NO_THROTTLE
        """What the answer tells the client to wait before its next request."""
        self.chunks: list[Chunk] | None = None
        """The answer's bytes, None until it is known. Empty if the request has none."""
        self.driver: CoroutineDriver | None = None
        """What drives the handler's coroutine, until that has ended."""
        self.holds = False
        """Whether it holds its connection, and keeps its frame."""
        self.holds_until_answered = False
        """Whether it holds it also while it waits."""
        self.received_s = self.resumed_s = received_s
        self.local_s = 0.0
        """How long it was worked at, up to when that was `resumed_s`; 0 if it has not waited yet."""
        self.answered_s = 0.0
        self.metrics = route.metrics
        """Where it is counted."""
        self.request_bytes = len(request.frame)

    def __str__(self) -> str:
        version = self.route.codec.api_version
        return f"{self.route.api_key.name} v{version} (correlation id {self.correlation_id})"

    def pause(self) -> None:
        """It waits from now on."""
        self.local_s += perf_counter() - self.resumed_s

    def resume(self) -> None:
        """It is worked at from now on."""
        self.resumed_s = perf_counter()

    @property
    def worked_s(self) -> float:
        """How long it was worked at as yet; it is being worked at now."""
        return self.local_s + perf_counter() - self.resumed_s

    def throttle(self, throttle_ms: int) -> None:
        """Have the answer tell the client to hold back, and the connection see to it."""
        throttle_time = timedelta(milliseconds=throttle_ms)
        if throttle_time > self.throttle_time:
            self.throttle_time = throttle_time
            self.connection.mute(throttle_ms)

    def left_queue(self) -> None:
        """Its answer had to wait for those of earlier requests of the connection."""
        self.metrics.response_queue_time.record(perf_counter() - self.answered_s)

    def hold(self) -> None:
        """Have nothing more read from its connection."""
        if not self.holds:
            self.holds = True
            self.connection.hold()

    def release(self) -> None:
        """Have the connection read from again, into where the frame lies."""
        if self.holds:
            self.holds = False
            self.frame.release()
            self.connection.release()

    def let_go(self) -> None:
        """Have the next requests read: it waits for others."""
        if not self.holds_until_answered:
            self.release()
        if self.route.refuse is None:
            self.request = None

    def finished(self, result: Any) -> Awaitable[Any] | None:
        """Answer with what the coroutine has returned, or return what is to be awaited yet."""
        following = self._answers.finished(self, result)
        if following is None:
            self.driver = None
        return following

    def failed(self, error: BaseException) -> None:
        """Refuse the request, or close its connection."""
        self.driver = None
        self._answers.failed(self, error)

    def abandon(self) -> None:
        """The connection is lost: nothing goes on for the answer."""
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.abandon()
