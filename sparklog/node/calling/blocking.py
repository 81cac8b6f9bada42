"""The blocking client side, for Spark tasks: the frames and checks of `channel` over a blocking socket.

Requests may be pipelined with `send` and `receive`; responses come in the order of the requests. After any
KafkaError that says network_exception or request_timed_out the connection is closed: make a new one. Not for
use by several threads at once.
"""

import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from sparklog.node.calling.login import MAX_ANSWER_BYTES, authentication_requests
from sparklog.node.calling.negotiation import api_versions_requests, fitting_version, usable_versions
from sparklog.node.security.sasl.mechanism import ClientMechanism, Login
from sparklog.node.security.tls.contexts import client_context
from sparklog.node.security.tls.errors import TlsHandshakeError, tls_error
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.node.serving.tls.tls_stream import ClientTls
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.codec.encoder import Chunk
from sparklog.protocol.codec.frames import LENGTH, decode_response, request_encoder
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode, KafkaError

_MAX_CORRELATION_ID = 0x7FFF_FFFF
_TLS_ALERTS = frozenset((0x15030100, 0x15030200, 0x15030300))
"""Responses of a TLS listener to plain bytes, read as the length of a frame."""
_RENEWED_AT = 0.85
"""Share of a session after which it is renewed: the lower bound of Kafka's clients."""
_COPIED_BYTES = 1 << 16
"""Up to this size a response's records are copied out of it, which costs less than leaving them there."""


class ResponseTooLargeError(KafkaError):
    """A response longer than `max_response_bytes`; its connection is closed."""

    def __init__(self, peer: str, size: int, max_response_bytes: int) -> None:
        super().__init__(
            ErrorCode.network_exception,
            f"{peer}: a response of {size} bytes, of at most {max_response_bytes}",
        )


class BlockingChannel:
    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float = 30.0,
        *,
        connect_timeout_s: float | None = None,
        max_response_bytes: int = 1 << 30,
        tls: TlsSettings | ClientTls | None = None,
        login: Login | None = None,
    ) -> None:
        """Connect, encrypted with `tls`; `timeout_s` bounds that and is the default for each response.

        `connect_timeout_s`, if given, bounds the connecting instead.

        With a `login` both sides are authenticated before this returns, and again before the session ends,
        between two requests.

        Raises:
            KafkaError: network_exception; TlsHandshakeError; TlsConfigError; what `authenticate` raises.
        """
        self.peer = f"{host}:{port}"
        self.versions: Mapping[ApiKey, SupportedVersions] | None = None
        """Versions usable by both sides, as found by `negotiate`; None before."""
        self._timeout_s = timeout_s if connect_timeout_s is None else connect_timeout_s
        self._max_response_bytes = max_response_bytes
        self._encode = request_encoder(client_id)
        self._next_correlation_id = 0
        self._outstanding: deque[tuple[int, Any]] = deque()
        try:
            self._socket: socket.socket | None = socket.create_connection((host, port), self._timeout_s)
        except (OSError, ValueError) as error:  # the latter: no host name can be so
            raise self._lost(f"cannot connect: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = self._encrypted(self._socket, host, tls)
        self._login = login
        self._renewed_s: float | None = None
        """When to reauthenticate (KIP-368), monotonic; None: never, or the session has no end yet."""
        if login is not None:
            self._log_in(login)
        self._timeout_s = timeout_s

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def outstanding(self) -> int:
        """How many sent requests still wait for `receive`."""
        return len(self._outstanding)

    @property
    def has_pending(self) -> bool:
        """Whether received bytes are buffered, of which the socket's descriptor shows nothing."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on several channels with `select`; -1 when closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def authenticate(self, mechanism: ClientMechanism) -> int:
        """Authenticate, with nothing outstanding; return the session's lifetime in ms, 0 for no end.

        Raises:
            KafkaError: as `send` and `receive`; sasl_authentication_failed, unsupported_sasl_mechanism or
                illegal_sasl_state: the connection is unusable.
        """
        max_response_bytes = self._max_response_bytes
        self._max_response_bytes = min(max_response_bytes, MAX_ANSWER_BYTES)
        steps = authentication_requests(mechanism, self.peer)
        entity = next(steps)
        while True:
            response = self.request(entity)
            try:
                entity = steps.send(response)
            except StopIteration as last:
                self._max_response_bytes = max_response_bytes
                return int(last.value)

    def _log_in(self, login: Login) -> None:
        self._renewed_s = None
        begun_s = time.monotonic()
        try:
            session_ms = self.authenticate(login(self.peer))
        except BaseException:  # no later call would raise it again
            self.close()
            raise
        if session_ms:
            self._renewed_s = begun_s + _RENEWED_AT * session_ms / 1000

    def negotiate(self) -> Mapping[ApiKey, SupportedVersions]:
        """Ask for ApiVersions; return the versions both sides know, which `send` respects from now on.

        Raises:
            KafkaError: as `send` and `receive`; or the error the other side answered with.
        """
        attempts = api_versions_requests()
        response = self.request(next(attempts))
        while response.error_code is not ErrorCode.none:
            response = self.request(attempts.send(response))
        self.versions = usable_versions(response)
        return self.versions

    def request(self, entity: Any, timeout_s: float | None = None) -> Any:
        """`send`, then `receive`; only when nothing else is outstanding.

        Raises:
            KafkaError: as `send` and `receive`.
        """
        assert not self._outstanding, "the response would be that of an earlier request"
        self.send(entity)
        return self.receive(timeout_s)

    def send(self, entity: Any, *, expect_response: bool = True) -> None:
        """Write one request, of an older version if negotiation found that the other side has no newer.

        `expect_response` is False for requests that have none (Produce with acks=0).

        Raises:
            KafkaError: network_exception; request_timed_out when the other side reads nothing for the
                default timeout; unsupported_version after `negotiate`.
        """
        if self._renewed_s is not None and time.monotonic() >= self._renewed_s and not self._outstanding:
            assert self._login is not None
            self._log_in(self._login)
        if self.versions is not None:
            entity = downgrade(entity, fitting_version(entity, self.versions, self.peer))
        correlation_id = self._next_correlation_id
        self._next_correlation_id = correlation_id + 1 if correlation_id < _MAX_CORRELATION_ID else 0
        connected = self._connected(self._timeout_s)
        try:
            _send_all(connected, self._encode(entity, correlation_id))
        except OSError as error:
            raise self._failed(error, f"sending {type(entity).__name__}") from error
        if expect_response:
            self._outstanding.append((correlation_id, entity))

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the response of the oldest request without one, in the version that was sent.

        Raises:
            KafkaError: network_exception; request_timed_out when it is not complete within `timeout_s`;
                invalid_request when it is malformed.
        """
        assert self._outstanding, "there is no request without a response"
        expected_id, request = self._outstanding[0]
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        try:
            (size,) = LENGTH.unpack(self._read(LENGTH.size, deadline))
            if size in _TLS_ALERTS:
                self.close()
                raise TlsHandshakeError(
                    self.peer, "it speaks TLS, and this client plain text (security.protocol)"
                )
            if not LENGTH.size <= size <= self._max_response_bytes:
                self.close()
                raise ResponseTooLargeError(self.peer, size, self._max_response_bytes)
            frame = self._read(size, deadline)
        except OSError as error:
            raise self._failed(error, f"waiting for the response to {type(request).__name__}") from error
        (correlation_id,) = LENGTH.unpack_from(frame)
        if correlation_id != expected_id:
            self.close()
            raise self._lost(f"correlation id {correlation_id} came, {expected_id} was expected")
        try:
            _, response = decode_response(request, frame, records_in_place=size > _COPIED_BYTES)
        except KafkaError:
            self.close()
            raise
        self._outstanding.popleft()
        return response

    def close(self) -> None:
        """Close the socket; later calls raise network_exception. Calling again has no effect."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _lost(self, why: str) -> KafkaError:
        return KafkaError(ErrorCode.network_exception, f"{self.peer}: {why}")

    def _encrypted(self, connected: socket.socket, host: str, tls: TlsSettings | ClientTls) -> socket.socket:
        try:
            if isinstance(tls, TlsSettings):
                tls = ClientTls(client_context(tls), tls.server_name)
            return tls.context.wrap_socket(connected, server_hostname=tls.server_name or host)
        except OSError as error:
            connected.close()
            raise tls_error(self.peer, error) from error
        except BaseException:
            connected.close()
            raise

    def _failed(self, error: OSError, doing: str) -> KafkaError:
        self.close()
        if isinstance(error, ssl.SSLError):  # TLS 1.3 tells of a client's certificate only afterwards
            return tls_error(self.peer, error)
        if isinstance(error, TimeoutError):
            return KafkaError(ErrorCode.request_timed_out, f"{self.peer}: time is up while {doing}")
        return self._lost(f"{doing}: {error}")

    def _connected(self, timeout_s: float) -> socket.socket:
        if self._socket is None:
            raise self._lost("the connection is closed")
        self._socket.settimeout(timeout_s)
        return self._socket

    def _read(self, size: int, deadline: float) -> memoryview:
        """Return exactly `size` bytes, read-only.

        Memory that nothing has come for yet is only reserved: numpy does not write zeros to it, so that a
        size that was made up costs no more than what came.
        """
        buffer = np.empty(size, dtype=np.uint8).data
        received = 0
        while received < size:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            count = self._connected(left_s).recv_into(buffer[received:])
            if count == 0:
                raise ConnectionResetError("the other side closed the connection")
            received += count
        return buffer.toreadonly()


def _send_all(connected: socket.socket, chunks: list[Chunk]) -> None:
    views = [memoryview(chunk) for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview)]
    assert len(views) == len(chunks), "a request holds no file region"
    if isinstance(connected, ssl.SSLSocket):
        connected.sendall(b"".join(views))
        return
    while views:
        sent = connected.sendmsg(views[:64])
        while sent:
            if sent < len(views[0]):
                views[0] = views[0][sent:]
                break
            sent -= len(views[0])
            views.pop(0)
