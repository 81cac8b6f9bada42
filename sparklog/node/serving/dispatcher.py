"""The one path of a listener's requests: authenticate, throttle, authorise, handle, measure.

    frame -> header, route, body -> admission -> handler -> response, at once or later -> bytes -> connection

Rules kept:
- Of a request of a connection without a principal only the header is read, unless it leads to one
  (`machine/authenticator.py`), and they are answered one after the other. One with a principal pays nothing.
- Every result of a handler (`requests`) takes the same way: an awaitable is driven (`fair_queue`) until there
  is a response, `_answer` makes its bytes. Throttle times and metrics are set here and nowhere else.
- The response to a throttled client leaves at once, with the throttle time; nothing is read from its
  connection for so long (KIP-219), so that a client that ignores it gains nothing.
- Long work (reading a request, handling it, writing its response) is done in later turns (`fair_queue`).
  Nothing more is read from the connection meanwhile: the request lies in its buffer, and a producer's second
  batch must not overtake its first.
- A KafkaError of a handler becomes the response, where the API's row says how it refuses a request as a
  whole; any other exception closes the connection, and never stops the loop.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from time import perf_counter
from typing import Any, Final

from sparklog.node.serving.admission import Admission
from sparklog.node.serving.exchange import Answering, Exchange
from sparklog.node.serving.requests import (
    NO_RESPONSE,
    Deferred,
    Request,
    RespondThenClose,
    Response,
    Throttled,
)
from sparklog.node.serving.routes import Routes
from sparklog.node.serving.throttling import NO_THROTTLE, throttle_time_of, throttled
from sparklog.node.serving.turns import CoroutineDriver, FairQueue, give_up, is_awaitable
from sparklog.protocol.codec.encoded import RawResponse
from sparklog.protocol.codec.encoder import Chunk
from sparklog.protocol.codec.error_counts import count_error_codes
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
        exchange = Exchange(self, connection, route, request, received_s)
        try:
            request.body = read_request_body(route.codec, frame, position)
        except TooManyItemsError as error:
            if not route.many:
                self.failed(exchange, error)
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
                self._take(exchange, response, connection.share_ends_s)
        except Exception as error:  # a handler's bug must cost its connection only, never the loop
            self.failed(exchange, error)
        if not connection.hold_count:
            frame.release()

    async def _read(self, exchange: Exchange, request: Request, position: int) -> Any:
        """Read a request that is too large to be read in one go, in steps, and handle it."""
        request.body = await read_request_body_in_steps(exchange.route.codec, request.frame, position)
        return self._handled(exchange, request)

    def _handled(self, exchange: Exchange, request: Request) -> Any:
        if exchange.route.metrics_of is not None:
            exchange.metrics = exchange.route.metrics_of(request.body)
        meter = self._meter(request)
        if meter is not None:
            exchange.meter = meter
            exchange.throttle(meter.throttle_ms)
        return self._authorize(request, exchange.route.handler)

    def finished(self, exchange: Exchange, result: Any) -> Awaitable[Any] | None:
        """Answer with the result of a handler or its coroutine, or return the awaitable that it leads to."""
        if is_awaitable(result):
            if not exchange.connection.closed:  # the handler itself may have had a part in losing it
                return result  # type: ignore[no-any-return]
            give_up(result)
        elif type(result) is list:
            self._answered(exchange, result)
        elif (
            isinstance(exchange.driver, CoroutineDriver)
            and exchange.driver.is_long
            and hasattr(result, "__version__")
        ):
            return encode_response_frame_in_steps(
                exchange.route.codec, exchange.correlation_id, self._measured(exchange, result)
            )
        else:
            self._answer(exchange, result)
        return None

    def completed(self, exchange: Exchange, response: Any) -> None:
        """Answer with the response of a handler's `Deferred`, or drive the coroutine that it leads to."""
        try:
            self._take(exchange, response, 0.0)
        except Exception as error:  # of the handler; the caller that completes a `Deferred` is not to blame
            self.failed(exchange, error)

    def _take(self, exchange: Exchange, result: Any, until_s: float) -> None:
        """Answer with a handler's result; drive the coroutine that it may be, at once until `until_s`."""
        awaitable = self.finished(exchange, result)
        if awaitable is not None:
            exchange.driver = CoroutineDriver(self._fair_queue, awaitable, exchange)
            exchange.driver.go_on(until_s)

    def _answer(self, exchange: Exchange, response: Response) -> None:
        codec = exchange.route.codec
        if not hasattr(response, "__version__"):
            if type(response) is Throttled:
                exchange.throttle(response.throttle_ms)
                self._answer(exchange, response.response)
                return
            if type(response) is RespondThenClose:
                self._answer(exchange, response.response)
                exchange.connection.refuse(response.reason, f"{exchange}: {response.what}")
                return
            exchange.metrics.errors[_NONE] += 1  # the codes of ready bytes are unknown
            if response is NO_RESPONSE:
                self._answered(exchange, [])
                return
            if type(response) is RawResponse:
                exchange.throttle(throttle_time_of(codec, response) // _MILLISECOND)
        response = self._measured(exchange, response)
        self._answered(exchange, encode_response_frame(codec, exchange.correlation_id, response))

    def _measured(self, exchange: Exchange, response: Any) -> Any:
        """Return the response with the request's throttle time, and count its error codes."""
        count_error_codes(response, exchange.metrics.errors)
        if exchange.meter is not None:
            exchange.throttle(exchange.meter.worked(exchange.worked_s))
        if not exchange.throttle_time:
            return response
        return throttled(exchange.route.codec, response, exchange.throttle_time)

    def _answered(self, exchange: Exchange, chunks: list[Chunk]) -> None:
        """Give the connection the response's bytes, complete with throttle time."""
        self._measure(exchange)
        if exchange.connection.closed:
            return
        exchange.chunks = chunks
        exchange.release()
        exchange.connection.answered()

    def _measure(self, exchange: Exchange) -> None:
        exchange.answered_s = now_s = perf_counter()
        waited, throttle_time = exchange.local_s > 0, exchange.throttle_time
        local_s = exchange.local_s + now_s - exchange.resumed_s
        exchange.metrics.answered(
            exchange.route.codec.api_version,
            exchange.request_bytes,
            now_s - exchange.received_s,
            local_s if waited else None,
            0.0 if throttle_time is NO_THROTTLE else throttle_time.total_seconds(),
        )
        if exchange.meter is not None:
            exchange.meter.worked(local_s)

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        """Refuse the request by the API's response for that, or close its connection."""
        if isinstance(error, asyncio.CancelledError):
            exchange.connection.close()
            return
        try:
            if isinstance(error, KafkaError | OSError) and self._is_refused(exchange, kafka_error(error)):
                return
        except Exception as mistake:
            error = mistake
        code = error.error_code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error
        exchange.metrics.errors[code] += 1
        self._measure(exchange)
        name = exchange.route.api_key.name
        if isinstance(error, KafkaError):
            exchange.connection.refuse(f"{name} {error.error_code.name}", f"{exchange}: {error}")
        else:
            exchange.connection.fail(f"{name} {type(error).__name__}", str(exchange), error)

    def _is_refused(self, exchange: Exchange, error: KafkaError) -> bool:
        """Answer with the API's refusal; return whether it has one."""
        route, request = exchange.route, exchange.request
        if route.refuse is None or request is None or request.body is None:
            return False
        self._answer(exchange, route.refuse(request, error))
        exchange.connection.note(f"{route.api_key.name} {error.error_code.name}", f"{exchange}: {error}")
        return True
