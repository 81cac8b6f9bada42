"""One accepted connection: frames in, responses out in the order of the requests; the dispatcher is between.

Rules kept:
- A connection whose responses are not being read, or which has `max_outstanding_requests` unanswered, is not
  read from until that changes; what it may still send fills its own socket buffers.
- One turn of the loop handles a bounded number of requests of one connection, for a bounded time, and
  receives once. While a request that takes longer goes on in later turns (`hold`), the next ones wait.
- A frame's length is believed only up to `max_request_bytes`, and memory follows what was received.
- A connection whose client is throttled is not read from until the throttle time is over (`mute`).
- When the connection is lost, every exchange of it is abandoned.

The reader is left registered with the loop while reading is paused, and taken away only if it fires: mostly
it does not, and that saves two system calls for each pause.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from sparklog.node.acls.acl import Principal
from sparklog.node.limits.rate_limited_log import RateLimitedLog
from sparklog.node.limits.request_memory import MemoryClaim, RequestMemory
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.buffers import KEEP_SMALL_BYTES, BufferPool, ReceiveBuffer
from sparklog.node.serving.closing_on_error import closing_on_error
from sparklog.node.serving.dispatcher import Dispatcher, Exchange
from sparklog.node.serving.machine.authenticator import Authenticator
from sparklog.node.serving.outbox import Flushed, Outbox, RegionTruncatedError
from sparklog.node.serving.turns import SHARE_S, FairQueue
from sparklog.protocol.codec.frames import LENGTH, MIN_REQUEST_BYTES

_REQUESTS_PER_TURN: Final = 64
_FLUSH_ABOVE_BYTES: Final = 256 << 10
_TLS_HANDSHAKE: Final = 0x1603
"""The first bytes of a TLS client, read as the beginning of a frame's length."""
NOTED_WORK_S: Final = 0.0002
"""Shorter turns of a connection are not counted: counting them would cost more than it is worth."""


class ConnectionOwner(Protocol):
    """The part of a listener that a connection uses."""

    name: str
    loop: asyncio.AbstractEventLoop
    pool: BufferPool
    fair_queue: FairQueue
    authentication: Authentication
    max_request_bytes: int
    max_outstanding_requests: int
    memory: RequestMemory | None
    unauthenticated_memory: RequestMemory
    log: RateLimitedLog
    dispatcher: Dispatcher

    def flush_soon(self, connection: "Connection") -> None:
        """Schedule `connection.flush()` for the end of this turn of the loop."""

    def connection_closed(self, connection: "Connection") -> None: ...


class Connection:
    """See the module. Handlers see a `Peer`, the dispatcher an `Answering`; the rest is for the listener."""

    __slots__ = (
        "_claim",
        "_close_callbacks",
        "_descriptor",
        "_exchanges",
        "_frame_bytes",
        "_in_turn",
        "_max_frame_bytes",
        "_min_frame_bytes",
        "_outbox",
        "_owner",
        "_paused",
        "_reader_registered",
        "_received",
        "_session",
        "_socket",
        "_unmuting",
        "_warming",
        "_writer_registered",
        "accepted_ms",
        "active",
        "authenticator",
        "client_software",
        "closed",
        "flush_scheduled",
        "has_asked",
        "hold_count",
        "peer",
        "principal",
        "share_ends_s",
    )

    def __init__(self, owner: ConnectionOwner, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self.client_software = ("", "")
        self.accepted_ms = int(owner.loop.time() * 1000)
        self.closed = False
        self.active = True
        """Set by every byte in or out; the listener clears it to find idle connections."""
        self.has_asked = False
        """Whether it has sent a request."""
        self.flush_scheduled = False
        self._owner = owner
        self._socket = connected
        self._descriptor = connected.fileno()
        self._received = ReceiveBuffer(owner.pool)
        self._frame_bytes = 0
        """Size with its length of the frame that has begun, 0 when not known."""
        self._claim = MemoryClaim(self)
        """Claim of the incomplete frame on the owner's memory."""
        self._exchanges: deque[Exchange] = deque()
        self._outbox = Outbox(connected)
        self._close_callbacks: list[Callable[[], None]] = []
        self._paused = False
        self._in_turn = False
        self.share_ends_s = 0.0
        self.hold_count = 0
        """Requests that are read, handled or answered in later turns; nothing is read while there is one."""
        self._unmuting: asyncio.TimerHandle | None = None
        """When reading resumes; None while it is not mute."""
        self._session: asyncio.TimerHandle | None = None
        """When the session expires; None for a session without end."""
        self.authenticator: Authenticator = owner.authentication.begin()
        self.principal: Principal | None = None
        self._min_frame_bytes = self._max_frame_bytes = 0
        self.authenticated()
        self._warming = False
        self._reader_registered = True
        self._writer_registered = False
        owner.loop.add_reader(self._descriptor, self._on_readable)

    @property
    def idle(self) -> bool:
        """Whether no request waits for its response here."""
        return not self._exchanges

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection is lost, at once if it already is."""
        if self.closed:
            callback()
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Close the socket and abandon every exchange; calling again has no effect."""
        if self.closed:
            return
        self.closed = True
        loop = self._owner.loop
        if self._reader_registered:
            loop.remove_reader(self._descriptor)
        if self._writer_registered:
            loop.remove_writer(self._descriptor)
        for timer in (self._unmuting, self._session):
            if timer is not None:
                timer.cancel()
        self._claim.close()
        self._socket.close()
        self._outbox.clear()
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            exchange.abandon()
        self._received.release()
        self._owner.connection_closed(self)
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    def authenticated(self) -> None:
        """Adopt the authenticator's present principal."""
        owner = self._owner
        self.principal = self.authenticator.principal
        self._min_frame_bytes = 0 if self.authenticator.takes_bare_tokens else MIN_REQUEST_BYTES
        self._max_frame_bytes = owner.max_request_bytes
        if self.principal is None:
            self._max_frame_bytes = min(owner.max_request_bytes, owner.authentication.max_receive_bytes)
            if self._session is not None:
                self._session.cancel()

    def begin_session(self, lifetime_ms: int) -> None:
        """Expire the authentication after `lifetime_ms`."""
        if not self.closed:
            self._session = self._owner.loop.call_later(lifetime_ms / 1000, self._session_is_over)

    def _session_is_over(self) -> None:
        self.authenticator.expire()
        self.authenticated()

    # Receiving

    @closing_on_error
    def _on_readable(self) -> None:
        if self._paused:
            self._owner.loop.remove_reader(self._descriptor)
            self._reader_registered = False
            return
        if self._owner.fair_queue.is_over:
            self._paused = True
            self._owner.fair_queue.wait(self._take_turn)
            return
        self._receive()

    @closing_on_error
    def _take_turn(self) -> None:
        """Receive in a later turn than the one in which the socket became readable."""
        if self.closed or self._must_pause():
            return
        self._paused = False
        self._register_reader()
        self._receive()

    def _receive(self) -> None:
        try:
            received_bytes = self._socket.recv_into(self._room())
        except (BlockingIOError, InterruptedError):
            # Earlier requests may wait for this turn: they were received after it was scheduled.
            self._handle_received()
            return
        except OSError as error:
            self._close(logging.INFO, "lost", f"connection of {self.peer} lost: {error}")
            return
        if received_bytes == 0:
            self.close()
            return
        self.active = True
        self._received.end += received_bytes
        self._handle_received()

    def _room(self) -> memoryview:
        """Return where to receive into; little room before authentication, until memory is claimed."""
        room = self._received.room(self._frame_bytes)
        return room if self.principal is not None or self._claim.size_bytes else room[:KEEP_SMALL_BYTES]

    def _handle_received(self) -> None:
        """Handle the whole frames received, as many as one turn allows, then send what is answered."""
        received = self._received
        dispatch = self._owner.dispatcher.dispatch
        handled = 0
        began_s = perf_counter()
        self.share_ends_s = began_s + SHARE_S
        self._in_turn = True
        while received.end - received.start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(received.readable, received.start)
            if not self._min_frame_bytes <= size <= self._max_frame_bytes:
                what = f"a frame of {size} bytes, of at most {self._max_frame_bytes}"
                if size >> 16 == _TLS_HANDSHAKE:
                    what = "it begins with a TLS handshake, and this listener speaks plain text"
                self.refuse("frame size", what)
                return
            start = received.start + LENGTH.size
            end = start + size
            if end > received.end:
                self._frame_bytes = LENGTH.size + size
                self._claim_memory(size)
                break
            if handled and (handled == _REQUESTS_PER_TURN or perf_counter() > self.share_ends_s):
                self._paused = True
                break
            if self._must_pause():
                self._paused = True
                break
            self._frame_bytes = 0
            received.start = end
            handled += 1
            dispatch(self, received.readable[start:end])
            if self.closed:
                return
            if self._claim.size_bytes and not self.hold_count:
                self._claim.give_back()
        else:
            self._frame_bytes = 0
        if self._outbox:
            self.flush()
        self._in_turn = False
        worked_s = perf_counter() - began_s
        if worked_s > NOTED_WORK_S:
            self._owner.fair_queue.spent(worked_s)
        if self.closed:
            return
        if self.hold_count:
            self._paused = True  # their frames lie in the buffer
            return
        received.settle()
        if not self._paused:
            self._paused = self._must_pause()
        elif not self._must_pause():
            # Only this turn is over, or what was in the way has left meanwhile.
            self._owner.fair_queue.wait(self._resume)

    def _must_pause(self) -> bool:
        if self._outbox.pending_memory_bytes > _FLUSH_ABOVE_BYTES and not self._writer_registered:
            self.flush()
        return (
            self.closed
            or self._writer_registered
            or self._warming
            or self.hold_count > 0
            or self._unmuting is not None
            or self._claim.waits
            or len(self._exchanges) >= self._owner.max_outstanding_requests
        )

    @closing_on_error
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

    def _claim_memory(self, size: int) -> None:
        """Claim the memory of the incomplete frame, or wait until there is some.

        Unauthenticated connections share a memory of their own, or they could keep others' requests out. The
        bytes that each of them may hold anyway are not claimed: a login must not wait for one that never
        completes.
        """
        if self.principal is None and size <= KEEP_SMALL_BYTES:
            return
        memory = self._owner.memory if self.principal is not None else self._owner.unauthenticated_memory
        if memory is not None and not self._claim.size_bytes and self._unmuting is None:
            self._claim.make(memory, size, partial(self._owner.fair_queue.wait, self._resume))

    def _close(self, level: int, reason: str, line: str, **details: Any) -> None:
        self._log(level, reason, line, **details)
        self.close()

    def _log(self, level: int, reason: str, line: str, **details: Any) -> None:
        address = self.peer.rpartition(":")[0]
        self._owner.log.write(level, address, reason, f"{self._owner.name}: {line}", **details)

    # Answering

    def expect(self, exchange: Exchange) -> None:
        """Reserve the response's place, behind those of earlier requests."""
        self.has_asked = True
        self._exchanges.append(exchange)

    def answered(self) -> None:
        """Send the responses that are complete, up to the first that is not."""
        exchanges = self._exchanges
        if (chunks := exchanges[0].chunks) is None:
            return
        exchanges.popleft()
        self._outbox.append(chunks)
        while exchanges and (chunks := exchanges[0].chunks) is not None:
            exchanges.popleft().left_queue()
            self._outbox.append(chunks)
        if not self._in_turn:
            if exchanges or self._paused:  # more answers may come in this turn, or requests be handled
                self._owner.flush_soon(self)
            else:
                self.flush()

    def hold(self) -> None:
        """Stop reading, until `release` was called as often."""
        self.hold_count += 1

    def release(self) -> None:
        """Resume reading in a later turn, after as many calls as of `hold`."""
        self.hold_count -= 1
        if not self.hold_count:
            self._claim.give_back()
        self._owner.fair_queue.wait(self._resume)

    def mute(self, duration_ms: int) -> None:
        """Stop reading for a time; the longest of several holds."""
        ends_s = self._owner.loop.time() + duration_ms / 1000
        if self._unmuting is not None:
            if ends_s <= self._unmuting.when():
                return
            self._unmuting.cancel()
        if not self.closed:
            self._unmuting = self._owner.loop.call_at(ends_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self._owner.fair_queue.wait(self._resume)

    def note(self, reason: str, what: str) -> None:
        """Log that a request was refused by its response."""
        self._log(logging.WARNING, reason, f"refused {self.peer}: {what}")

    def refuse(self, reason: str, what: str) -> None:
        """Send the earlier responses, and close, because of an error of the other side."""
        self.flush()
        self._close(logging.WARNING, reason, f"closing the connection of {self.peer}: {what}")

    def fail(self, reason: str, what: str, error: BaseException) -> None:
        """Send the earlier responses, and close, because of an error of this side."""
        self.flush()
        line = f"{what} from {self.peer} failed; closing the connection"
        self._close(logging.ERROR, reason, line, exc_info=error)

    # Sending

    def flush(self) -> None:
        """Send complete responses, as far as the socket takes them; the rest follows by itself."""
        self.flush_scheduled = False
        if self.closed or self._warming:
            return
        try:
            flushed = self._outbox.flush()
            if flushed is Flushed.COLD:
                self._owner.loop.run_in_executor(None, self._outbox.warm()).add_done_callback(self._warmed)
                self._warming = True
        except OSError as error:
            self._close(logging.INFO, "lost", f"connection of {self.peer} lost: {error}")
            return
        except RegionTruncatedError as error:
            self._close(logging.WARNING, "truncated", f"closing the connection of {self.peer}: {error}")
            return
        except Exception as error:  # as in `closing_on_error`; `fail` would come here again
            self._close(logging.ERROR, type(error).__name__, f"sending to {self.peer} failed", exc_info=error)
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
            loop.call_soon(self._owner.flush_soon, self)
        elif self._paused and not self._in_turn and not self._warming:
            self._resume()

    def _warmed(self, read: asyncio.Future[None]) -> None:
        self._warming = False
        if (error := read.exception()) is not None:
            line = f"closing the connection of {self.peer}: a log file cannot be read: {error}"
            self._close(logging.WARNING, "unreadable", line)
            return
        self.flush()
