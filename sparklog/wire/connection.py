"""One accepted connection: frames in, handlers called, answers out in the order of the requests.

Rules kept:
- A connection whose answers are not being read, or which has `max_outstanding_requests` unanswered, is not
  read from until that changes; what it may still send fills its own socket buffers.
- One turn of the loop handles a bounded number of requests of one connection, for a bounded time, and
  receives once. A request that takes longer goes on in later turns (`turns`), the connection's next wait.
- A frame's length is believed only up to `max_request_bytes`, and memory follows what was received.
- When the connection is lost, every `Deferred` of it is abandoned and every coroutine cancelled.

The reader is left registered with the loop while reading is paused, and taken away only if it fires: mostly
it does not, and that saves two system calls for each pause.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter
from types import GeneratorType
from typing import Any, Final, Protocol

from sparklog.errors import KafkaError
from sparklog.wire.apis import ApiKey
from sparklog.wire.buffers import BufferPool, ReceiveBuffer
from sparklog.wire.encoder import Chunk
from sparklog.wire.frames import (
    LENGTH,
    MIN_REQUEST_BYTES,
    RequestCodec,
    encode_response_frame,
    encode_response_frame_in_steps,
    read_request_body,
    read_request_body_in_steps,
    read_request_header,
)
from sparklog.wire.guard import TooManyItemsError
from sparklog.wire.outbox import Flushed, Outbox, RegionTruncatedError
from sparklog.wire.rate_limited_log import RateLimitedLog
from sparklog.wire.requests import NO_RESPONSE, Deferred, Handler, Request, Response, Steps
from sparklog.wire.turns import SHARE_S, LongWork, Turns

_REQUESTS_PER_TURN: Final = 64
_FLUSH_ABOVE_BYTES: Final = 256 << 10
_NOTED_WORK_S: Final = 0.0002
"""Shorter turns of a connection are not counted: it would cost them more than it is worth."""


class Route:
    """Who handles one API version, and how its frames are read and written."""

    __slots__ = ("api_key", "codec", "handler", "many")

    def __init__(self, api_key: ApiKey, codec: RequestCodec, handler: Handler, *, many: bool) -> None:
        self.api_key = api_key
        self.codec = codec
        self.handler = handler
        self.many = many
        """Whether a request may have more items than are read in one go."""


class ConnectionOwner(Protocol):
    """What a connection needs of its listener."""

    name: str
    loop: asyncio.AbstractEventLoop
    pool: BufferPool
    turns: Turns
    max_request_bytes: int
    max_outstanding_requests: int
    log: RateLimitedLog

    def route(self, api_key: int, api_version: int) -> Route:
        """Return who handles an API version; raises KafkaError(unsupported_version)."""

    def flush_soon(self, connection: "Connection") -> None:
        """Have `connection.flush()` called before the loop waits again."""

    def connection_closed(self, connection: "Connection") -> None:
        """Forget the connection."""


class _Answer:
    """The place of one request's answer among those of its connection; None until it is known."""

    __slots__ = ("chunks", "deferred", "long_work", "task")

    def __init__(self, chunks: list[Chunk] | None = None) -> None:
        self.chunks = chunks
        self.deferred: Deferred | None = None
        self.task: asyncio.Future[Any] | None = None
        self.long_work: LongWork | None = None
        """What reads the request, if that takes long: then there is no other until it is answered."""


def _long_request(route: Route, request: Request, position: int) -> Steps:
    """Read a request that is too large to be read in one go, and have it handled."""
    request.body = yield from read_request_body_in_steps(route.codec, request.frame, position)
    return route.handler(request)


def _with_frame(route: Route, correlation_id: int, steps: Steps) -> Steps:
    """Make an answer in steps, and its bytes too, if it is an entity."""
    response: Response = steps
    while isinstance(response, GeneratorType):
        response = yield from response
    if not hasattr(response, "__version__"):
        return response
    return (yield from encode_response_frame_in_steps(route.codec, correlation_id, response))


class Connection:
    """See the module. What `Peer` has is for handlers; the rest is for the listener."""

    __slots__ = (
        "_answers",
        "_close_callbacks",
        "_descriptor",
        "_frame_bytes",
        "_in_turn",
        "_long_works",
        "_outbox",
        "_owner",
        "_paused",
        "_reader_registered",
        "_received",
        "_share_ends_s",
        "_socket",
        "_warming",
        "_writer_registered",
        "accepted_ms",
        "active",
        "closed",
        "flush_scheduled",
        "has_asked",
        "peer",
    )

    def __init__(self, owner: ConnectionOwner, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self.accepted_ms = int(owner.loop.time() * 1000)
        self.closed = False
        self.active = True
        """Set by every byte in or out; the listener clears it to find idle connections."""
        self.has_asked = False
        """Whether it has brought a request yet."""
        self.flush_scheduled = False
        self._owner = owner
        self._socket = connected
        self._descriptor = connected.fileno()
        self._received = ReceiveBuffer(owner.pool)
        self._frame_bytes = 0
        """Size with its length of the frame that has begun, 0 when not known."""
        self._answers: deque[_Answer] = deque()
        self._outbox = Outbox(connected)
        self._close_callbacks: list[Callable[[], None]] = []
        self._paused = False
        self._in_turn = False
        self._share_ends_s = 0.0
        self._long_works: set[LongWork] = set()
        """What goes on in later turns; nothing more is asked of this connection meanwhile."""
        self._warming = False
        self._reader_registered = True
        self._writer_registered = False
        owner.loop.add_reader(self._descriptor, self._on_readable)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for an answer here."""
        return not self._answers

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the connection is lost, at once if it already is."""
        if self.closed:
            callback()
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Close the socket and tell everyone who waits; calling again has no effect."""
        if self.closed:
            return
        self.closed = True
        loop = self._owner.loop
        if self._reader_registered:
            loop.remove_reader(self._descriptor)
        if self._writer_registered:
            loop.remove_writer(self._descriptor)
        self._socket.close()
        self._outbox.clear()
        for work in self._long_works:
            work.abandon()
        self._received.release()
        self._owner.connection_closed(self)
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if answer.deferred is not None:
                answer.deferred.abandon()
            if answer.task is not None:
                answer.task.cancel()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    # Receiving

    def _on_readable(self) -> None:
        if self._paused:
            self._owner.loop.remove_reader(self._descriptor)
            self._reader_registered = False
            return
        if self._owner.turns.is_over:
            self._paused = True
            self._owner.turns.wait(self._take_turn)
            return
        self._receive()

    def _take_turn(self) -> None:
        """Receive, as could not be done in the turn in which there was something to receive."""
        if self.closed or self._must_pause():
            return
        self._paused = False
        self._register_reader()
        self._receive()

    def _receive(self) -> None:
        try:
            received_bytes = self._socket.recv_into(self._received.room(self._frame_bytes))
        except (BlockingIOError, InterruptedError):
            # What came before may wait for this turn: it was received after this one was asked for.
            self._handle_received()
            return
        except OSError as error:
            self._lost(error)
            return
        if received_bytes == 0:
            self.close()
            return
        self.active = True
        self._received.end += received_bytes
        self._handle_received()

    def _handle_received(self) -> None:
        """Handle the whole frames received, as many as one turn allows, then send what is answered."""
        received = self._received
        handled = 0
        began_s = perf_counter()
        self._share_ends_s = began_s + SHARE_S
        self._in_turn = True
        while received.end - received.start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(received.readable, received.start)
            if not MIN_REQUEST_BYTES <= size <= self._owner.max_request_bytes:
                self.flush()  # what was asked before is answered
                self._refuse(
                    "frame size", f"a frame of {size} bytes, of at most {self._owner.max_request_bytes}"
                )
                return
            start = received.start + LENGTH.size
            end = start + size
            if end > received.end:
                self._frame_bytes = LENGTH.size + size
                break
            if handled and (handled == _REQUESTS_PER_TURN or perf_counter() > self._share_ends_s):
                self._paused = True
                break
            if self._must_pause():
                self._paused = True
                break
            self._frame_bytes = 0
            received.start = end
            handled += 1
            self._handle_frame(received.readable[start:end])
            if self.closed:
                return
        else:
            self._frame_bytes = 0
        if self._outbox:
            self.flush()
        self._in_turn = False
        worked_s = perf_counter() - began_s
        if worked_s > _NOTED_WORK_S:
            self._owner.turns.spent(worked_s)
        if self.closed:
            return
        if self._long_works:
            self._paused = True  # what they work at lies in the buffer
            return
        received.settle()
        if not self._paused:
            self._paused = self._must_pause()
        elif not self._must_pause():
            # Only this turn is over, or what was in the way has left meanwhile.
            self._owner.turns.wait(self._resume)

    def _must_pause(self) -> bool:
        if self._outbox.pending_memory_bytes > _FLUSH_ABOVE_BYTES and not self._writer_registered:
            self.flush()
        return (
            self.closed
            or self._writer_registered
            or self._warming
            or bool(self._long_works)
            or len(self._answers) >= self._owner.max_outstanding_requests
        )

    def _resume(self) -> None:
        if self.closed or not self._paused or self._in_turn or self._must_pause():
            return
        self._paused = False
        self._register_reader()
        self._handle_received()

    def _register_reader(self) -> None:
        if not self._reader_registered:
            self._owner.loop.add_reader(self._descriptor, self._on_readable)
            self._reader_registered = True

    def _refuse(self, reason: str, what: str) -> None:
        self._log(logging.WARNING, reason, f"closing the connection of {self.peer}: {what}")
        self.close()

    def _lost(self, error: OSError) -> None:
        self._log(logging.INFO, "lost", f"connection of {self.peer} lost: {error}")
        self.close()

    def _log(self, level: int, reason: str, line: str, **details: Any) -> None:
        address = self.peer.rpartition(":")[0]
        self._owner.log.write(level, address, reason, f"{self._owner.name}: {line}", **details)

    # Handling

    def _handle_frame(self, frame: memoryview) -> None:
        try:
            (api_key, api_version, correlation_id, client_id), position = read_request_header(frame)
            route = self._owner.route(api_key, api_version)
            body = read_request_body(route.codec, frame, position)
        except TooManyItemsError as error:
            if not route.many:
                self._handler_failed(route, correlation_id, error)
                return
            self.has_asked = True
            request = Request(route.api_key, api_version, correlation_id, client_id, None, frame, self)
            self._answers.append(answer := _Answer())
            steps = _long_request(route, request, position)
            answer.long_work = self._in_steps(answer, route, request, steps)
            self._long_works.add(answer.long_work)
            answer.long_work.begin_later()
            return
        except KafkaError as error:
            self.flush()  # what was asked before is answered
            self._refuse(error.error_code.name, str(error))
            return
        self.has_asked = True
        request = Request(route.api_key, api_version, correlation_id, client_id, body, frame, self)
        try:
            response = route.handler(request)
            if hasattr(response, "__version__") or response is NO_RESPONSE:
                # The usual case: answered at once, in the version that was asked.
                chunks = self._encode(route, correlation_id, response)
                if self._answers:
                    self._answers.append(_Answer(chunks))
                else:
                    self._outbox.append(chunks)
            else:
                self._answers.append(answer := _Answer())
                self._answer_later(answer, route, request, response)
        except Exception as error:  # a handler's bug must cost its connection only, never the loop
            self._handler_failed(route, correlation_id, error)
        if not self._long_works:
            frame.release()

    def _answer_later(self, answer: _Answer, route: Route, request: Request, response: Response) -> None:
        correlation_id = request.correlation_id
        if self.closed:
            # The handler itself had a part in losing the connection.
            if isinstance(response, Deferred):
                response.abandon()
            elif isinstance(response, Coroutine | GeneratorType):
                response.close()
        elif isinstance(response, GeneratorType):
            work = self._in_steps(answer, route, request, response)
            if not work.go_on(self._share_ends_s):
                self._long_works.add(work)
        elif isinstance(response, Deferred):
            answer.deferred = response
            response.bind(lambda given: self._answered(answer, route, correlation_id, given))
        elif isinstance(response, Awaitable):
            request.frame = memoryview(bytes(request.frame))
            answer.task = asyncio.ensure_future(response)
            answer.task.add_done_callback(lambda task: self._task_done(answer, route, request, task))
        else:
            self._answered(answer, route, correlation_id, response)

    def _task_done(self, answer: _Answer, route: Route, request: Request, task: asyncio.Future[Any]) -> None:
        answer.task = None
        if task.cancelled():
            self.close()
        elif (error := task.exception()) is not None:
            self._handler_failed(route, request.correlation_id, error)
        else:
            self._answer_later(answer, route, request, task.result())

    def _answered(self, answer: _Answer, route: Route, correlation_id: int, response: Response) -> None:
        """Put a response into its place, and send it when nothing before it is missing."""
        if self.closed:
            return
        answer.deferred = None
        if isinstance(response, GeneratorType):
            self._answered_in_steps(answer, route, correlation_id, response)
            return
        if answer.long_work is not None:
            self._long_works.discard(answer.long_work)
        try:
            answer.chunks = self._encode(route, correlation_id, response)
        except Exception as error:  # as in _handle_frame; and whoever completed this is not to blame
            self._handler_failed(route, correlation_id, error)
            return
        if self._answers[0] is not answer:
            return
        while self._answers and self._answers[0].chunks is not None:
            self._outbox.append(self._answers.popleft().chunks or [])
        if not self._in_turn:
            self._owner.flush_soon(self)

    def _in_steps(self, answer: _Answer, route: Route, request: Request, steps: Steps) -> LongWork:
        """Return the work of answering with what `steps` return."""

        def finished(response: Response) -> None:
            is_later = work in self._long_works
            self._answer_later(answer, route, request, response)
            if is_later:
                frame.release()
                if answer.long_work is None or answer.chunks is not None:
                    self._long_works.discard(work)
                    self._owner.turns.wait(self._resume)

        def failed(error: Exception) -> None:
            self._handler_failed(route, request.correlation_id, error)

        frame = request.frame
        work = LongWork(
            self._owner.turns, _with_frame(route, request.correlation_id, steps), finished, failed
        )
        return work

    def _answered_in_steps(self, answer: _Answer, route: Route, correlation_id: int, steps: Steps) -> None:
        def finished(chunks: Response) -> None:
            self._long_works.remove(work)
            self._answered(answer, route, correlation_id, chunks)
            self._owner.turns.wait(self._resume)

        def failed(error: Exception) -> None:
            self._handler_failed(route, correlation_id, error)

        work = LongWork(self._owner.turns, _with_frame(route, correlation_id, steps), finished, failed)
        self._long_works.add(work)
        work.begin_later()

    def _encode(self, route: Route, correlation_id: int, response: Response) -> list[Chunk]:
        if response is NO_RESPONSE:
            return []
        if type(response) is list:
            return response  # encoded already
        return encode_response_frame(route.codec, correlation_id, response)

    def _handler_failed(self, route: Route, correlation_id: int, error: BaseException) -> None:
        what = f"{route.api_key.name} v{route.codec.api_version} (correlation id {correlation_id})"
        self.flush()  # what was asked before is answered
        if isinstance(error, KafkaError):
            self._refuse(f"{route.api_key.name} {error.error_code.name}", f"{what}: {error}")
            return
        self._log(
            logging.ERROR,
            f"{route.api_key.name} {type(error).__name__}",
            f"{what} from {self.peer} failed; closing the connection",
            exc_info=error,
        )
        self.close()

    # Sending

    def flush(self) -> None:
        """Send what is answered, as far as the socket takes it; the rest follows by itself."""
        self.flush_scheduled = False
        if self.closed or self._warming:
            return
        try:
            flushed = self._outbox.flush()
        except OSError as error:
            self._lost(error)
            return
        except RegionTruncatedError as error:
            self._refuse("truncated", str(error))
            return
        self.active = True
        loop = self._owner.loop
        if flushed is Flushed.BLOCKED:
            if not self._writer_registered:
                loop.add_writer(self._descriptor, self.flush)
                self._writer_registered = True
            return
        if self._writer_registered:
            loop.remove_writer(self._descriptor)
            self._writer_registered = False
        if flushed is Flushed.YIELD:
            self._owner.flush_soon(self)
        elif flushed is Flushed.COLD:
            self._warming = True
            loop.run_in_executor(None, self._outbox.warm()).add_done_callback(self._warmed)
        elif self._paused and not self._in_turn:
            self._resume()

    def _warmed(self, read: asyncio.Future[None]) -> None:
        self._warming = False
        if (error := read.exception()) is not None:
            self._refuse("unreadable", f"a log file cannot be read: {error}")
            return
        self.flush()
