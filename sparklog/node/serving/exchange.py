"""A request on the way to its response, shared by the dispatcher and a connection."""

from collections.abc import Awaitable
from datetime import timedelta
from time import perf_counter
from typing import Any, Protocol

from sparklog.node.serving.admission import Meter
from sparklog.node.serving.machine.authenticator import Authenticator
from sparklog.node.serving.requests import Deferred, Peer, Request
from sparklog.node.serving.routes import Route
from sparklog.node.serving.throttling import NO_THROTTLE
from sparklog.node.serving.turns import CoroutineDriver
from sparklog.protocol.codec.encoder import Chunk


class Answering(Peer, Protocol):
    """The part of a connection that the dispatcher uses."""

    authenticator: Authenticator
    share_ends_s: float
    """End of this turn's work for it, by the performance counter (s)."""
    hold_count: int
    """Calls of `hold` without `release`: nothing more is read while there is one."""

    def expect(self, exchange: "Exchange") -> None:
        """Reserve the response's place, behind those of earlier requests."""

    def answered(self) -> None:
        """Send the responses that are complete, up to the first that is not."""

    def hold(self) -> None:
        """Stop reading, until `release` was called as often."""

    def release(self) -> None:
        """Resume reading in a later turn, after as many calls as of `hold`."""

    def mute(self, duration_ms: int) -> None:
        """Stop reading for a time."""

    def close(self) -> None:
        """Close; calling again has no effect."""

    def refuse(self, reason: str, what: str) -> None:
        """Send the earlier responses, and close, because of an error of the other side."""

    def fail(self, reason: str, what: str, error: BaseException) -> None:
        """Send the earlier responses, and close, because of an error of this side."""


class Answers(Protocol):
    """The part of the dispatcher that an exchange uses."""

    def finished(self, exchange: "Exchange", result: Any) -> Awaitable[Any] | None:
        """Answer with a coroutine's result, or return the awaitable that it leads to."""

    def completed(self, exchange: "Exchange", response: Any) -> None:
        """Answer with the response of a handler's `Deferred`, or drive the coroutine that it leads to."""

    def failed(self, exchange: "Exchange", error: BaseException) -> None: ...


class Exchange:
    __slots__ = (
        "_answers",
        "answered_s",
        "chunks",
        "connection",
        "correlation_id",
        "driver",
        "frame",
        "holds_until_answered",
        "is_holding",
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
        """None while the request waits, to free its memory; kept where the API's refusal needs it."""
        self.frame = request.frame
        self.correlation_id = request.correlation_id
        self.meter: Meter | None = None
        self.throttle_time = NO_THROTTLE
        """Throttle time in the response."""
        self.chunks: list[Chunk] | None = None
        """The response's bytes, None until it is known. Empty if the request has none."""
        self.driver: CoroutineDriver | Deferred | None = None
        """Drives the handler's coroutine, until that has ended; or the handler's `Deferred`."""
        self.is_holding = False
        """Whether it holds its connection, and keeps its frame."""
        self.holds_until_answered = False
        """Whether it holds it also while it waits."""
        self.received_s = self.resumed_s = received_s
        self.local_s = 0.0
        """Time of work on the request up to `resumed_s`; 0 if it has not waited yet."""
        self.answered_s = 0.0
        self.metrics = route.metrics
        self.request_bytes = len(request.frame)

    def __str__(self) -> str:
        version = self.route.codec.api_version
        return f"{self.route.api_key.name} v{version} (correlation id {self.correlation_id})"

    def pause(self) -> None:
        self.local_s += perf_counter() - self.resumed_s

    def resume(self) -> None:
        self.resumed_s = perf_counter()

    @property
    def worked_s(self) -> float:
        """Time of work on the request so far; only while it is being worked on."""
        return self.local_s + perf_counter() - self.resumed_s

    def throttle(self, throttle_ms: int) -> None:
        """Put the throttle time into the response and mute the connection for it."""
        throttle_time = timedelta(milliseconds=throttle_ms)
        if throttle_time > self.throttle_time:
            self.throttle_time = throttle_time
            self.connection.mute(throttle_ms)

    def left_queue(self) -> None:
        """Record that the response had to wait for those of earlier requests of the connection."""
        self.metrics.response_queue_time.record(perf_counter() - self.answered_s)

    def hold(self) -> None:
        """Stop reading from its connection."""
        if not self.is_holding:
            self.is_holding = True
            self.connection.hold()

    def release(self) -> None:
        """Resume reading from the connection, into the buffer of the frame."""
        if self.is_holding:
            self.is_holding = False
            self.frame.release()
            self.connection.release()

    def let_go(self) -> None:
        """Read the next requests while this one waits."""
        if not self.holds_until_answered:
            self.release()
        if self.route.refuse is None:
            self.request = None

    def wait_for(self, deferred: Deferred) -> None:
        """Wait without a coroutine: each fetch and each acknowledgement by all replicas does."""
        self.pause()
        self.let_go()
        self.driver = deferred
        deferred.bind(self._completed)

    def _completed(self, response: Any) -> None:
        self.driver = None
        self.resume()
        self._answers.completed(self, response)

    def finished(self, result: Any) -> Awaitable[Any] | None:
        following = self._answers.finished(self, result)
        if following is None:
            self.driver = None
        return following

    def failed(self, error: BaseException) -> None:
        self.driver = None
        self._answers.failed(self, error)

    def abandon(self) -> None:
        """Stop all work on the response: the connection is lost."""
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.abandon()
