"""The asyncio client side: one connection to a broker or the controller.

Requests are pipelined and answered in order, as Kafka's servers do; a response with another correlation id
than the oldest outstanding one ends the connection. Every response passes the guard. `request` makes no task:
it returns a future, which may be awaited, given callbacks, or cancelled (the response is then dropped).
`request_then` makes no future either: for followers' fetches.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from kio.index import KioIndexError

from sparklog.node.calling.connecting import connect_to_first, handshake
from sparklog.node.calling.login import MAX_ANSWER_BYTES, authentication_requests
from sparklog.node.calling.negotiation import api_versions_requests, fitting_version, usable_versions
from sparklog.node.security.sasl.mechanism import ClientMechanism, Login
from sparklog.node.serving.buffers import BufferPool, ReceiveBuffer
from sparklog.node.serving.outbox import Flushed, Outbox
from sparklog.node.serving.tls.tls_outbox import TlsOutbox
from sparklog.node.serving.tls.tls_stream import SLICE_BYTES, ClientTls, TlsStream
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.codec.fixed.message import entity_of
from sparklog.protocol.codec.frames import LENGTH, decode_response, request_encoder
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_MAX_CORRELATION_ID = 0x7FFF_FFFF


class _Outstanding:
    """A request without a response so far."""

    __slots__ = ("answer", "correlation_id", "expires_s", "fail", "request", "timeout_ms")

    def __init__(
        self,
        correlation_id: int,
        request: Any,
        timeout_ms: int,
        answer: Callable[[Any], None],
        fail: Callable[[KafkaError], None],
    ) -> None:
        self.correlation_id = correlation_id
        self.request = request
        self.timeout_ms = timeout_ms
        self.answer = answer
        self.fail = fail
        self.expires_s = 0.0
        """By the loop's clock, once it is sent."""


def _set_result(future: asyncio.Future[Any], response: Any) -> None:
    if not future.done():
        future.set_result(response)


def _set_exception(future: asyncio.Future[Any], error: KafkaError) -> None:
    if not future.done():
        future.set_exception(error)


class Channel:
    """A connection over which requests are pipelined. Made by `connect`; belongs to one event loop."""

    def __init__(
        self,
        connected: socket.socket,
        client_id: str,
        request_timeout_ms: int,
        max_response_bytes: int,
        peer: str,
        stream: TlsStream | None = None,
    ) -> None:
        self.peer = peer
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done, without an exception, when the connection is lost or closed, for any reason."""
        self.closed_idle = False
        """Whether the connection ended while no request waited for a response."""
        self.versions: Mapping[ApiKey, SupportedVersions] | None = None
        """Versions usable by both sides, as found by `negotiate`; None before."""
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._descriptor = connected.fileno()
        self._encode = request_encoder(client_id)
        self._request_timeout_ms = request_timeout_ms
        self._max_response_bytes = max_response_bytes
        self._next_correlation_id = 0
        self._outstanding: deque[_Outstanding] = deque()
        self._expiring: asyncio.TimerHandle | None = None
        """The timer of the first request that expires, or of one before it that was answered meanwhile."""
        self._stream = stream
        """The TLS stream, after its handshake; None for plain text."""
        self._wire = bytearray(0 if stream is None else SLICE_BYTES)
        self._outbox = Outbox(connected)
        if stream is not None:
            self._outbox = TlsOutbox(connected, stream, bytearray(SLICE_BYTES))
        self._received = ReceiveBuffer(BufferPool())
        self._frame_bytes = 0
        self._writer_registered = False
        self._loop.add_reader(self._descriptor, self._on_readable)

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
        receive_buffer_bytes: int | None = None,
        tls: ClientTls | None = None,
        login: Login | None = None,
    ) -> Self:
        """Return a connected channel; `request_timeout_ms` is the default of its requests.

        `receive_buffer_bytes` is for SO_RCVBUF; the system sizes it if not given. With `tls` the connection
        is encrypted; with a `login` both sides are authenticated before this returns. All of that takes
        `connect_timeout_ms` at most: the kernel accepts connections of a process that stands still.

        Raises:
            KafkaError: network_exception, when the connection is refused or times out, or the TLS
                handshake fails (TlsHandshakeError); what `authenticate` raises.
        """
        peer = f"{host}:{port}"
        connected: socket.socket | None = None
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                try:
                    connected = await connect_to_first(host, port, receive_buffer_bytes)
                    stream = None if tls is None else await handshake(connected, tls, host, peer)
                    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    channel = cls(connected, client_id, request_timeout_ms, max_response_bytes, peer, stream)
                # An impossible host name, or no thread can be started to resolve it.
                except (OSError, ValueError, RuntimeError) as error:
                    if connected is not None:
                        connected.close()
                    raise KafkaError(
                        ErrorCode.network_exception, f"cannot connect to {peer}: {error}"
                    ) from error
                if login is not None:
                    await channel._authenticate_or_close(login(peer))
        except TimeoutError:
            did_not = "accept" if connected is None else "answer"
            raise KafkaError(
                ErrorCode.network_exception, f"{peer} did not {did_not} within {connect_timeout_ms} ms"
            ) from None
        return channel

    def request(self, entity: Any, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send a request entity; the future's result is the response entity of the version that was sent.

        After `negotiate`, an entity newer than the other side knows is downgraded first. A request that is
        not answered in time ends the connection, because what follows on it would be late too.

        Raises (through the future):
            KafkaError: network_exception (the connection is or gets lost, or is closed), request_timed_out,
                unsupported_version (after `negotiate`), or invalid_request for a malformed response.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.closed.done():
            future.set_exception(self._lost("the connection is closed"))
            return future
        try:
            entity = self._fitting(entity_of(entity))
        except KafkaError as error:
            future.set_exception(error)
            return future
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        answer, fail = partial(_set_result, future), partial(_set_exception, future)
        self._send(_Outstanding(self._take_correlation_id(), entity, timeout_ms, answer, fail))
        return future

    def request_then(
        self,
        entity: Any,
        answer: Callable[[Any], None],
        fail: Callable[[KafkaError], None],
        timeout_ms: int,
    ) -> None:
        """Send a request entity; call `answer` with the response, or `fail` with the errors of `request`.

        One of them is called once, not before this returns unless sending fails; they must not raise. The
        records in the response to a `FixedRequest` are valid until `answer` returns.

        Raises:
            KafkaError: network_exception: the connection is closed; unsupported_version (after `negotiate`).
        """
        if self.closed.done():
            raise self._lost("the connection is closed")
        if self.versions is not None:
            entity = self._fitting(entity_of(entity))
        self._send(_Outstanding(self._take_correlation_id(), entity, timeout_ms, answer, fail))

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = correlation_id + 1 if correlation_id < _MAX_CORRELATION_ID else 0
        return correlation_id

    def _send(self, outstanding: _Outstanding) -> None:
        chunks = self._encode(outstanding.request, outstanding.correlation_id)
        outstanding.expires_s = expires_s = self._loop.time() + outstanding.timeout_ms / 1000
        self._outstanding.append(outstanding)
        if self._expiring is None or expires_s < self._expiring.when():
            self._expire_at(expires_s)
        was_empty = not self._outbox
        self._outbox.append(chunks)
        if was_empty:
            self._flush()

    async def authenticate(self, mechanism: ClientMechanism) -> int:
        """Authenticate, before any other request; return the session's lifetime in ms, 0 for no end.

        Raises:
            KafkaError: as `request`; sasl_authentication_failed, unsupported_sasl_mechanism or
                illegal_sasl_state: the connection is unusable.
        """
        max_response_bytes = self._max_response_bytes
        self._max_response_bytes = min(max_response_bytes, MAX_ANSWER_BYTES)
        steps = authentication_requests(mechanism, self.peer)
        entity = next(steps)
        while True:
            response = await self.request(entity)
            try:
                entity = steps.send(response)
            except StopIteration as last:
                self._max_response_bytes = max_response_bytes
                return int(last.value)

    async def _authenticate_or_close(self, mechanism: ClientMechanism) -> None:
        try:
            await self.authenticate(mechanism)
        except BaseException:
            self.close()
            raise

    async def negotiate(self) -> Mapping[ApiKey, SupportedVersions]:
        """Ask for ApiVersions; return the versions both sides know, which `request` respects from now on.

        Raises:
            KafkaError: as `request`; or the error the other side answered with.
        """
        attempts = api_versions_requests()
        response = await self.request(next(attempts))
        while response.error_code is not ErrorCode.none:
            response = await self.request(attempts.send(response))
        self.versions = usable_versions(response)
        return self.versions

    def close(self) -> None:
        """Close; outstanding requests fail with network_exception. Calling again has no effect."""
        self._close(self._lost("the connection was closed"))

    def _fitting(self, entity: Any) -> Any:
        if self.versions is None:
            return entity
        version = fitting_version(entity, self.versions, self.peer)
        try:
            return downgrade(entity, version)
        except KioIndexError as error:
            raise KafkaError(ErrorCode.unsupported_version, str(error)) from error

    def _lost(self, why: str) -> KafkaError:
        return KafkaError(ErrorCode.network_exception, f"{self.peer}: {why}")

    def _expire_at(self, when_s: float) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
        self._expiring = self._loop.call_at(when_s, self._look_for_expired)

    def _look_for_expired(self) -> None:
        """Close if a request has expired; wait for the next one that may.

        A timer a request, nearly always cancelled, would cost more than to look again now and then.
        """
        fired_s = self._expiring.when() if self._expiring is not None else self._loop.time()
        self._expiring = None
        if not self._outstanding:
            return
        first = min(self._outstanding, key=lambda outstanding: outstanding.expires_s)
        if first.expires_s > fired_s:
            self._expire_at(first.expires_s)
            return
        name, timeout_ms = type(first.request).__name__, first.timeout_ms
        what = f"{self.peer}: {name} was not answered within {timeout_ms} ms"
        self._outstanding.remove(first)
        first.fail(KafkaError(ErrorCode.request_timed_out, what))
        self._close(self._lost("the connection was closed, because a request before timed out"))

    def _close(self, error: KafkaError) -> None:
        if self.closed.done():
            return
        self._loop.remove_reader(self._descriptor)
        if self._writer_registered:
            self._loop.remove_writer(self._descriptor)
        self._socket.close()
        self._outbox.clear()
        self._received.release()
        self.closed_idle = not self._outstanding
        self.closed.set_result(None)
        outstanding, self._outstanding = self._outstanding, deque()
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None
        for request in outstanding:
            request.fail(error)

    def _flush(self) -> None:
        if self.closed.done():
            return
        try:
            flushed = self._outbox.flush()
        except OSError as error:
            self._close(self._lost(str(error)))
            return
        if flushed is Flushed.EMPTY:
            if self._writer_registered:
                self._loop.remove_writer(self._descriptor)
                self._writer_registered = False
        elif not self._writer_registered:
            # Requests hold no file regions: it is BLOCKED, or YIELD with the socket still writable.
            self._loop.add_writer(self._descriptor, self._flush)
            self._writer_registered = True

    def _on_readable(self) -> None:
        received = self._received
        try:
            room = received.room(self._frame_bytes)
            received_bytes = self._socket.recv_into(room) if self._stream is None else self._decrypt(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._close(self._lost(str(error)))
            return
        if received_bytes == 0:
            self._close(self._lost("the other side closed the connection"))
            return
        received.end += received_bytes
        self._frame_bytes = 0
        while received.end - received.start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(received.readable, received.start)
            if not LENGTH.size <= size <= self._max_response_bytes:
                self._close(self._lost(f"a response of {size} bytes, of at most {self._max_response_bytes}"))
                return
            start = received.start + LENGTH.size
            end = start + size
            if end > received.end:
                self._frame_bytes = LENGTH.size + size
                break
            frame = received.readable[start:end]
            received.start = end
            self._handle_response(frame)
            if self.closed.done():
                return
            frame.release()
        received.settle()
        if self._stream is not None and self._stream.has_more:
            self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        """Read bytes already buffered by TLS, for which the socket does not become readable."""
        if not self.closed.done():
            self._on_readable()

    def _decrypt(self, room: memoryview) -> int:
        """Receive into `room` what TLS decrypts; return its length, 0 at the end.

        Raises:
            BlockingIOError: nothing, or nothing whole, has come.
            OSError: the connection is lost, or the other side does not keep to the protocol.
        """
        stream = self._stream
        assert stream is not None
        try:
            count = self._socket.recv_into(self._wire)
            if count == 0:
                return 0
            stream.feed(memoryview(self._wire)[:count])
        except BlockingIOError:
            if not stream.has_more:
                raise
        count = stream.read_into(room)
        if stream.has_output:
            self._flush()
        if not count and not stream.ended:
            raise BlockingIOError
        return count

    def _handle_response(self, frame: memoryview) -> None:
        if not self._outstanding:
            self._close(self._lost("a response without a request"))
            return
        oldest = self._outstanding[0]
        (correlation_id,) = LENGTH.unpack_from(frame)
        if correlation_id != oldest.correlation_id:
            self._close(
                self._lost(f"correlation id {correlation_id} came, {oldest.correlation_id} was expected")
            )
            return
        try:
            _, response = decode_response(oldest.request, frame)
        except KafkaError as error:
            self._outstanding.popleft()
            oldest.fail(error)
            self._close(self._lost(f"a malformed response: {error}"))
            return
        self._outstanding.popleft()
        oldest.answer(response)
