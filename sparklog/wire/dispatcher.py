"""The one path of a listener's requests: authenticate, authorise, throttle, handle, measure.

    frame -> header, route, body -> admission -> handler -> answer, at once or later -> bytes -> connection

Rules kept:
- Whatever a handler returns (`requests`), its answer takes the same way: `_take` goes on with a `Deferred`,
  an awaitable or steps until there is a response, `_answer` makes its bytes. Nothing else says a throttle
  time, or measures.
- What takes long, be it to read a request, to handle it or to write its answer, is done in steps in later
  turns (`turns`). Nothing more is read from the connection meanwhile: what is worked at lies in its buffer,
  and a producer's second batch must not overtake its first.
- A KafkaError that escapes a handler is the answer, where the row of the table says how the API refuses a
  request as a whole; everything else that escapes closes the connection, and never stops the loop.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from time import perf_counter
from types import GeneratorType
from typing import Any, Final, Protocol

from sparklog.errors import ErrorCode, KafkaError, kafka_error
from sparklog.wire.admission import Admission
from sparklog.wire.encoder import Chunk
from sparklog.wire.frames import (
    encode_response_frame,
    encode_response_frame_in_steps,
    read_request_body,
    read_request_body_in_steps,
    read_request_header,
)
from sparklog.wire.guard import TooManyItemsError
from sparklog.wire.requests import NO_RESPONSE, Deferred, Peer, Request, Response, Steps
from sparklog.wire.routes import Route, Routes
from sparklog.wire.throttling import throttled
from sparklog.wire.turns import LongWork, Turns

__all__ = ["Answering", "Dispatcher", "Exchange"]

_NONE: Final = ErrorCode.none


class Answering(Peer, Protocol):
    """What the dispatcher needs of a connection."""

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

    def note(self, reason: str, what: str) -> None:
        """Log that a request was refused by an answer."""

    def close(self) -> None:
        """Close; calling again has no effect."""

    def refuse(self, reason: str, what: str) -> None:
        """Send what was asked before, and close, because of what the other side sent."""

    def fail(self, reason: str, what: str, error: BaseException) -> None:
        """Send what was asked before, and close, because of a mistake here."""


class Exchange:
    """One request on the way to its answer."""

    __slots__ = (
        "chunks",
        "connection",
        "deferred",
        "holds",
        "is_error",
        "local_s",
        "received_s",
        "request",
        "resumed_s",
        "route",
        "task",
        "work",
    )

    def __init__(self, connection: Answering, route: Route, request: Request, received_s: float) -> None:
        self.connection = connection
        self.route = route
        self.request = request
        self.chunks: list[Chunk] | None = None
        """The answer's bytes, None until it is known. Empty if the request has none."""
        self.is_error = False
        self.deferred: Deferred | None = None
        self.task: asyncio.Future[Any] | None = None
        self.work: LongWork | None = None
        self.holds = False
        """Whether it holds its connection."""
        self.received_s = self.resumed_s = received_s
        self.local_s = 0.0
        """How long it was worked at, up to when that was `resumed_s`."""

    def pause(self) -> None:
        """It waits from now on."""
        self.local_s += perf_counter() - self.resumed_s

    def resume(self) -> None:
        """It is worked at from now on."""
        self.resumed_s = perf_counter()

    def hold(self) -> None:
        """Have nothing more read from the connection."""
        if not self.holds:
            self.holds = True
            self.connection.hold()

    def release(self) -> None:
        """Have the connection read from again."""
        if self.holds:
            self.holds = False
            self.connection.release()

    def abandon(self) -> None:
        """The connection is lost: tell whoever works at the answer."""
        if self.work is not None:
            self.work.abandon()
        if self.deferred is not None:
            self.deferred.abandon()
        if self.task is not None:
            self.task.cancel()


class Dispatcher:
    """The requests of one listener."""

    def __init__(self, listener_name: str, routes: Routes, admission: Admission, turns: Turns) -> None:
        self._listener_name = listener_name
        self._routes = routes
        self._authenticate, self._authorize, self._throttle_time = admission
        self._turns = turns

    def dispatch(self, connection: Answering, frame: memoryview) -> None:
        """Have the request in `frame` answered by `connection`; let go of the frame as soon as possible."""
        received_s = perf_counter()
        try:
            (api_key, api_version, correlation_id, client_id), position = read_request_header(frame)
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
        exchange = Exchange(connection, route, request, received_s)
        try:
            request.body = read_request_body(route.codec, frame, position)
        except TooManyItemsError as error:
            if not route.many:
                self._failed(exchange, error)
                return
            connection.expect(exchange)
            exchange.hold()
            self._work(exchange, self._read_in_steps(exchange, position), until_answered=True)
            return
        except KafkaError as error:
            connection.refuse(error.error_code.name, str(error))
            return
        connection.expect(exchange)
        try:
            response = self._handled(route, request)
        except Exception as error:  # a handler's bug must cost its connection only, never the loop
            self._failed(exchange, error)
        else:
            self._take(exchange, response, connection.share_ends_s)
        if not connection.holds:
            frame.release()

    def _read_in_steps(self, exchange: Exchange, position: int) -> Steps:
        """Read a request that is too large to be read in one go, and have it handled."""
        route, request = exchange.route, exchange.request
        request.body = yield from read_request_body_in_steps(route.codec, request.frame, position)
        return self._handled(route, request)

    def _handled(self, route: Route, request: Request) -> Any:
        """Return what the handler does, if the request is admitted."""
        request.principal = self._authenticate(request.connection)
        self._authorize(request)
        request.throttle_time = self._throttle_time(request)
        return route.handler(request)

    def _take(self, exchange: Exchange, response: Any, work_until_s: float = 0.0) -> None:
        """Go on with what was returned for a request until that is its answer.

        Steps are taken at once until `work_until_s`, if that is given, and otherwise in later turns.
        """
        try:
            if isinstance(response, GeneratorType):
                self._work(exchange, response, work_until_s)
            elif isinstance(response, Deferred):
                self._wait_for_deferred(exchange, response)
            elif hasattr(response, "__version__") or not isinstance(response, Awaitable):
                self._answer(exchange, response)
            else:
                self._wait_for_awaitable(exchange, response)
        except Exception as error:  # of whoever made the response; who completes a `Deferred` is not to blame
            self._failed(exchange, error)

    def _wait_for_deferred(self, exchange: Exchange, deferred: Deferred) -> None:
        if exchange.connection.closed:  # the handler itself had a part in losing it
            deferred.abandon()
            return

        def completed(response: Response) -> None:
            exchange.deferred = None
            exchange.resume()
            self._take(exchange, response)

        exchange.pause()
        exchange.deferred = deferred
        deferred.bind(completed)

    def _wait_for_awaitable(self, exchange: Exchange, awaitable: Awaitable[Response]) -> None:
        if exchange.connection.closed:
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            return

        def done(task: asyncio.Future[Any]) -> None:
            exchange.task = None
            exchange.resume()
            if task.cancelled():
                exchange.connection.close()
            elif (error := task.exception()) is not None:
                self._failed(exchange, error)
            else:
                self._take(exchange, task.result())

        exchange.pause()
        exchange.request.frame = memoryview(bytes(exchange.request.frame))
        exchange.task = asyncio.ensure_future(awaitable)
        exchange.task.add_done_callback(done)

    def _work(
        self, exchange: Exchange, steps: Steps, until_s: float = 0.0, *, until_answered: bool = False
    ) -> None:
        """Take the steps to an answer, as many as there is time for at once, the others in later turns.

        The connection is held until they are taken, or even `until_answered`.
        """
        connection, frame = exchange.connection, exchange.request.frame
        if connection.closed:
            steps.close()
            return
        is_later = False

        def finished(response: Any) -> None:
            work, exchange.work = exchange.work, None
            if is_later and work is not None:
                exchange.local_s += work.worked_s
                exchange.resumed_s = work.resumed_s
            if type(response) is list:
                self._answered(exchange, response)
            else:
                self._take(exchange, response)
            if is_later:
                frame.release()
                if not until_answered:
                    exchange.release()

        def failed(error: Exception) -> None:
            exchange.work = None
            self._failed(exchange, error)

        work = LongWork(self._turns, self._chunks_in_steps(exchange, steps), finished, failed)
        exchange.work = work
        if until_s and work.go_on(until_s):
            return
        is_later = True
        exchange.pause()
        if not until_s:
            work.begin_later()
        exchange.hold()

    def _chunks_in_steps(self, exchange: Exchange, steps: Steps) -> Steps:
        """Return the answer's bytes, if the steps lead to an entity; what else they lead to as it is."""
        response: Any = steps
        while isinstance(response, GeneratorType):
            response = yield from response
        if not hasattr(response, "__version__"):
            return response
        codec, request = exchange.route.codec, exchange.request
        response = self._told(exchange, response)
        return (yield from encode_response_frame_in_steps(codec, request.correlation_id, response))

    def _answer(self, exchange: Exchange, response: Response) -> None:
        if response is NO_RESPONSE:
            self._answered(exchange, [])
            return
        if hasattr(response, "__version__"):
            response = self._told(exchange, response)
        codec, request = exchange.route.codec, exchange.request
        self._answered(exchange, encode_response_frame(codec, request.correlation_id, response))

    def _told(self, exchange: Exchange, response: Any) -> Any:
        """Return the response with the request's throttle time, and note whether it is an error."""
        if getattr(response, "error_code", _NONE) is not _NONE:
            exchange.is_error = True
        throttle_time = exchange.request.throttle_time
        return throttled(response, throttle_time) if throttle_time else response

    def _answered(self, exchange: Exchange, chunks: list[Chunk]) -> None:
        """Give the connection the answer, when everything is known of it."""
        self._measure(exchange)
        if exchange.connection.closed:
            return
        exchange.chunks = chunks
        exchange.release()
        exchange.connection.answered()

    def _measure(self, exchange: Exchange) -> None:
        now_s = perf_counter()
        exchange.route.metrics.answered(
            now_s - exchange.received_s,
            exchange.local_s + now_s - exchange.resumed_s,
            is_error=exchange.is_error,
        )

    def _failed(self, exchange: Exchange, error: BaseException) -> None:
        """Answer that the request is refused, where the API has such an answer, or close its connection."""
        connection, route, request = exchange.connection, exchange.route, exchange.request
        name = route.api_key.name
        what = f"{name} v{route.codec.api_version} (correlation id {request.correlation_id})"
        exchange.is_error = True
        if isinstance(error, KafkaError | OSError) and route.refuse is not None and request.body is not None:
            refusal = kafka_error(error)
            try:
                self._answer(exchange, route.refuse(request, refusal))
            except Exception as mistake:
                error = mistake
            else:
                connection.note(f"{name} {refusal.error_code.name}", f"{what}: {refusal}")
                return
        self._measure(exchange)
        if isinstance(error, KafkaError):
            connection.refuse(f"{name} {error.error_code.name}", f"{what}: {error}")
        else:
            connection.fail(f"{name} {type(error).__name__}", what, error)
