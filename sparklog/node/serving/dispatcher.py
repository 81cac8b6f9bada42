"""The one path of a listener's requests: authenticate, throttle, authorise, handle, measure.

    frame -> header, route, body -> admission -> handler -> response, at once or later -> bytes -> connection

Rules kept:
- Of a request of a connection without a principal only the header is read, unless it leads to one
  (`machine/authenticator.py`), and they are answered one after the other. One with a principal pays nothing.
- Every result of a handler (`requests`) takes the same way, its `Exchange`: an awaitable is driven (`turns`)
  until there is a response, `_answer` makes its bytes. Throttle times and metrics are set here and nowhere
  else.
- The response to a throttled client leaves at once, with the throttle time; nothing is read from its
  connection for so long (KIP-219), so that a client that ignores it gains nothing.
- Long work (reading a request, handling it, writing its response) is done in later turns (`turns`).
  Nothing more is read from the connection meanwhile: the request lies in its buffer, and a producer's second
  batch must not overtake its first.
- A KafkaError of a handler becomes the response, where the API's row says how it refuses a request as a
  whole; any other exception closes the connection, and never stops the loop.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from time import perf_counter
from typing import Any, Final, Protocol

from sparklog.node.serving.admission import Admission, Meter
from sparklog.node.serving.machine.authenticator import Authenticator
from sparklog.node.serving.requests import (
    NO_RESPONSE,
    Deferred,
    Peer,
    Request,
    RespondThenClose,
    Response,
    Throttled,
)
from sparklog.node.serving.routes import Route, Routes
from sparklog.node.serving.throttling import NO_THROTTLE, throttle_time_of, throttled
from sparklog.node.serving.turns import CoroutineDriver, FairQueue, give_up, is_awaitable
from sparklog.protocol.codec.encoded import RawResponse
from sparklog.protocol.codec.encoder import Chunk
from sparklog.protocol.codec.error_counts import count_error_codes
from sparklog.protocol.codec.fixed.message import FixedResponse
from sparklog.protocol.codec.frames import (
    encode_response_frame,
    encode_response_frame_in_steps,
    read_request_body,
    read_request_body_in_steps,
    read_request_header,
)
from sparklog.protocol.codec.guard import TooManyItemsError
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error

_NONE: Final = ErrorCode.none
_MILLISECOND: Final = timedelta(milliseconds=1)


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


class Dispatcher:
    def __init__(
        self, listener_name: str, routes: Routes, admission: Admission, fair_queue: FairQueue
    ) -> None:
        self._listener_name = listener_name
        self._routes = routes
        _, self._authorize, self._meter = admission
        self._fair_queue = fair_queue

    def dispatch(self, connection: Answering, frame: memoryview) -> None:
        """Handle the request in `frame`; release the frame as soon as possible."""
        received_s = perf_counter()
        principal = connection.principal
        try:
            if principal is None:
                frame = connection.authenticator.request_frame(frame)
            (api_key, api_version, correlation_id, client_id), position = read_request_header(frame)
            if principal is None:
                connection.authenticator.check(api_key)
            route = self._routes.find(api_key, api_version)
        except KafkaError as error:
            connection.refuse(error.error_code.name, str(error))
            return
        request = Request(
            route.api_key,
            api_version,
            correlation_id,
            client_id,
            None,
            frame,
            connection,
            self._listener_name,
        )
        if principal is not None:
            request.principal = principal
        exchange = Exchange(self._fair_queue, connection, route, request, received_s)
        try:
            fixed = None if route.read_fixed is None else route.read_fixed(frame, position)
            request.body = read_request_body(route.codec, frame, position) if fixed is None else fixed
        except TooManyItemsError as error:
            if not route.many:
                exchange.failed(error)
                return
            connection.expect(exchange)
            exchange.holds_until_answered = True
            exchange.driver = CoroutineDriver(
                self._fair_queue, self._read(exchange, request, position), exchange
            )
            exchange.driver.begin_later()
            return
        except KafkaError as error:
            connection.refuse(error.error_code.name, str(error))
            return
        connection.expect(exchange)
        try:
            if principal is None:
                exchange.holds_until_answered = True
                exchange.hold()
                response = route.handler(request)
            else:
                response = self._handled(exchange, request)
            if type(response) is Deferred and not connection.closed:
                exchange.wait_for(response)
            else:
                exchange.take(response, connection.share_ends_s)
        except Exception as error:  # a handler's bug must cost its connection only, never the loop
            exchange.failed(error)
        if not connection.hold_count:
            frame.release()

    async def _read(self, exchange: "Exchange", request: Request, position: int) -> Any:
        """Read a request that is too large to be read in one go, in steps, and handle it."""
        request.body = await read_request_body_in_steps(exchange.route.codec, request.frame, position)
        return self._handled(exchange, request)

    def _handled(self, exchange: "Exchange", request: Request) -> Any:
        if exchange.route.metrics_of is not None:
            exchange.metrics = exchange.route.metrics_of(request.body)
        meter = self._meter(request)
        if meter is not None:
            exchange.meter = meter
            exchange.throttle(meter.throttle_ms)
        return self._authorize(request, exchange.route.handler)


class Exchange:
    """A request on the way to its response: held, waiting, answered or refused."""

    __slots__ = (
        "_fair_queue",
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
        self,
        fair_queue: FairQueue,
        connection: Answering,
        route: Route,
        request: Request,
        received_s: float,
    ) -> None:
        self._fair_queue = fair_queue
        self.connection = connection
        self.route = route
        self.request: Request | None = request
        """None while the request waits, to free its memory; kept where the API's refusal needs it."""
        self.frame = request.frame
        self.correlation_id = request.correlation_id
        self.meter: Meter | None = None
        self.throttle_time = NO_THROTTLE
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
        """Wait without a coroutine, as fetches and produces with acks=all do."""
        self.pause()
        self.let_go()
        self.driver = deferred
        deferred.bind(self._completed)

    def _completed(self, response: Any) -> None:
        self.driver = None
        self.resume()
        try:
            self.take(response, 0.0)
        except Exception as error:  # of the handler; the caller that completes a `Deferred` is not to blame
            self.failed(error)

    def take(self, result: Any, until_s: float) -> None:
        """Answer with a handler's result; drive the coroutine that it may be, at once until `until_s`."""
        awaitable = self.finished(result)
        if awaitable is not None:
            self.driver = CoroutineDriver(self._fair_queue, awaitable, self)
            self.driver.go_on(until_s)

    def finished(self, result: Any) -> Awaitable[Any] | None:
        """Answer with the result of a handler or its coroutine, or return the awaitable that it leads to."""
        if is_awaitable(result):
            if not self.connection.closed:  # the handler itself may have had a part in losing it
                return result  # type: ignore[no-any-return]
            give_up(result)
        elif type(result) is list:
            self._answered(result)
        elif (
            isinstance(self.driver, CoroutineDriver)
            and self.driver.is_long
            and hasattr(result, "__version__")
        ):
            return encode_response_frame_in_steps(
                self.route.codec, self.correlation_id, self._measured(result)
            )
        else:
            self._answer(result)
        self.driver = None
        return None

    def _answer(self, response: Response) -> None:
        codec = self.route.codec
        if not hasattr(response, "__version__"):
            if isinstance(response, FixedResponse):
                self._answer_fixed(response)
                return
            if type(response) is Throttled:
                self.throttle(response.throttle_ms)
                self._answer(response.response)
                return
            if type(response) is RespondThenClose:
                self._answer(response.response)
                self.connection.refuse(response.reason, f"{self}: {response.what}")
                return
            self.metrics.errors[_NONE] += 1  # the codes of ready bytes are unknown
            if response is NO_RESPONSE:
                self._answered([])
                return
            if type(response) is RawResponse:
                self.throttle(throttle_time_of(codec, response) // _MILLISECOND)
        response = self._measured(response)
        self._answered(encode_response_frame(codec, self.correlation_id, response))

    def _answer_fixed(self, response: FixedResponse) -> None:
        if self.meter is not None or self.throttle_time:
            self._answer(response.entity())  # which has room for a throttle time
            return
        self.metrics.errors[_NONE] += response.success_count
        self._answered(response.frame(self.correlation_id))

    def _measured(self, response: Any) -> Any:
        """Return the response with the request's throttle time, and count its error codes."""
        count_error_codes(response, self.metrics.errors)
        if self.meter is not None:
            self.throttle(self.meter.worked(self.worked_s))
        if not self.throttle_time:
            return response
        return throttled(self.route.codec, response, self.throttle_time)

    def _answered(self, chunks: list[Chunk]) -> None:
        """Give the connection the response's bytes, complete with throttle time."""
        self._measure()
        if self.connection.closed:
            return
        self.chunks = chunks
        self.release()
        self.connection.answered()

    def _measure(self) -> None:
        self.answered_s = now_s = perf_counter()
        waited, throttle_time = self.local_s > 0, self.throttle_time
        local_s = self.local_s + now_s - self.resumed_s
        self.metrics.answered(
            self.route.codec.api_version,
            self.request_bytes,
            now_s - self.received_s,
            local_s if waited else None,
            0.0 if throttle_time is NO_THROTTLE else throttle_time.total_seconds(),
        )
        if self.meter is not None:
            self.meter.worked(local_s)

    def failed(self, error: BaseException) -> None:
        """Refuse the request by the API's response for that, or close its connection."""
        self.driver = None
        if isinstance(error, asyncio.CancelledError):
            self.connection.close()
            return
        try:
            if isinstance(error, KafkaError | OSError) and self._is_refused(kafka_error(error)):
                return
        except Exception as mistake:
            error = mistake
        code = error.error_code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error
        self.metrics.errors[code] += 1
        self._measure()
        name = self.route.api_key.name
        if isinstance(error, KafkaError):
            self.connection.refuse(f"{name} {error.error_code.name}", f"{self}: {error}")
        else:
            self.connection.fail(f"{name} {type(error).__name__}", str(self), error)

    def _is_refused(self, error: KafkaError) -> bool:
        """Answer with the API's refusal; return whether it has one."""
        route, request = self.route, self.request
        if route.refuse is None or request is None or request.body is None:
            return False
        self._answer(route.refuse(request, error))
        self.connection.note(f"{route.api_key.name} {error.error_code.name}", f"{self}: {error}")
        return True

    def abandon(self) -> None:
        """Stop all work on the response: the connection is lost."""
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.abandon()
