"""The SASL states by which a connection gains and loses its principal (KIP-43, KIP-152, KIP-368).

    HANDSHAKE_OR_VERSIONS - ApiVersions ---> HANDSHAKE
    both of these --- SaslHandshake -------> AUTHENTICATE
    AUTHENTICATE ---- SaslAuthenticate ----> AUTHENTICATE, and at the end of the exchange COMPLETE
    COMPLETE -------- SaslHandshake -------> AUTHENTICATE
    COMPLETE -------- session is over -----> EXPIRED
    EXPIRED --------- SaslHandshake -------> AUTHENTICATE
    any of them ----- anything else -------> FAILED

Rules kept:
- Between the handshake and the end of the exchange the connection has no principal, even if it had one.
- While it has none, only requests that lead to one are served: ApiVersions and SaslHandshake before the
  handshake, SaslAuthenticate after it. Anything else, and every failure, ends the connection. ApiVersions is
  answered once, but for refusals: a client asks again in a version of the response.
- A connection that has a session of limited length may authenticate again, not more than once a second, by
  the same mechanism and as the same principal. After the session's end it may do nothing else.
- On a listener without SASL a connection has its principal from the start. Only driver and brokers
  authenticate there.

Order for the caller: `check` for each request of a connection without a principal, before its body is read;
`versions_sent`, `handshake` and `authenticate` as they come; `expire` when the session is over.

Source: Kafka's SaslServerAuthenticator, and KafkaChannel.maybeBeginServerReauthentication.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError, ServerMechanism
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError

MIN_REAUTHENTICATION_MS: Final = 1000
MAX_SESSION_MS: Final = 100 * 365 * 24 * 60 * 60 * 1000
"""A century. Java's clients count it in nanoseconds, of which 292 years fit, and fail beyond."""


class SaslState(Enum):
    HANDSHAKE_OR_VERSIONS = "handshake or versions"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    EXPIRED = "expired"
    FAILED = "failed"


_HEADER: Final = struct.Struct(">hhihi")
"""Header of a request without a client id, and the length of the bytes behind it: SaslAuthenticate v0."""
_SERVED: Final[Mapping[SaslState, frozenset[int]]] = {
    SaslState.HANDSHAKE_OR_VERSIONS: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    SaslState.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    SaslState.AUTHENTICATE: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SaslState.COMPLETE: frozenset(),
    SaslState.EXPIRED: frozenset({ApiKey.SASL_HANDSHAKE}),
    SaslState.FAILED: frozenset(),
}
"""APIs served to a connection without a principal, by state."""


@dataclass(frozen=True, slots=True)
class Mechanisms:
    begin: Mapping[str, Callable[[], ServerMechanism]]
    """Begins an exchange, by the mechanism's name."""
    offered: tuple[str, ...] = ()
    """Mechanisms in the response to clients; if there are any, the listener requires SASL."""
    max_reauthentication_ms: Mapping[str, int] | None = None
    """Longest session of each mechanism; a mechanism without an entry has no limit."""


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    token: bytes = b""
    error_code: ErrorCode = ErrorCode.none
    client_message: str | None = None
    """Error message for the client,"""
    reason: str | None = None
    """and the reason for the log; None without an error."""
    session_lifetime_ms: int = 0
    """Time until the client has to reauthenticate; 0 for never, or not yet."""


class Authenticator:
    def __init__(self, mechanisms: Mechanisms, principal: Principal | None) -> None:
        """Begin with the principal of connections without SASL; None where SASL is required."""
        self.principal = principal
        """None while the connection is not authenticated."""
        self.state = SaslState.HANDSHAKE_OR_VERSIONS if principal is None else SaslState.COMPLETE
        self.takes_bare_tokens = False
        """Whether tokens have no headers, as after the oldest SaslHandshake."""
        self._mechanisms = mechanisms
        self._mechanism: str | None = None
        """Mechanism of the exchange, under way or complete."""
        self._exchange: ServerMechanism | None = None
        self._previous: tuple[str, Principal] | None = None
        """Mechanism and principal that reauthentication must not change."""
        self._session_lifetime_ms = 0
        """Lifetime of the present session; 0 if it does not end."""
        self._begun_ms: int | None = None
        """Start of the last reauthentication."""

    def request_frame(self, frame: memoryview) -> memoryview:
        """Return a request of a connection without a principal, with the header that a bare token lacks."""
        if not self.takes_bare_tokens:
            return frame
        header = _HEADER.pack(ApiKey.SASL_AUTHENTICATE, 0, 0, -1, len(frame))
        return memoryview(header + bytes(frame))

    def check(self, api_key: int) -> None:
        """Refuse an API that is not served to a connection without a principal.

        Raises:
            KafkaError: ILLEGAL_SASL_STATE; close the connection.
        """
        state = self.state
        if api_key in _SERVED[state]:
            return
        self.state = SaslState.FAILED
        if state is SaslState.EXPIRED:
            raise KafkaError(ErrorCode.illegal_sasl_state, "its session is over, and was not renewed")
        raise KafkaError(
            ErrorCode.illegal_sasl_state, f"API {api_key} is not served in the state {state.name} of SASL"
        )

    def versions_sent(self) -> None:
        """Record that ApiVersions was answered without an error."""
        if self.state is SaslState.HANDSHAKE_OR_VERSIONS:
            self.state = SaslState.HANDSHAKE

    def handshake(self, mechanism: str, version: int, now_ms: int) -> ErrorCode:
        """Choose a mechanism; `now_ms` is monotonic. Any error but ILLEGAL_SASL_STATE ends the connection."""
        is_known = mechanism in self._mechanisms.begin
        if self.state is SaslState.COMPLETE:
            if self._mechanism is not None:
                if not self._may_renew(now_ms):
                    return ErrorCode.illegal_sasl_state
            elif not is_known or mechanism in self._mechanisms.offered:
                # On a listener without SASL only driver and brokers authenticate.
                return ErrorCode.illegal_sasl_state
        if not is_known:
            self._fail()
            return ErrorCode.unsupported_sasl_mechanism
        if self._mechanism is not None and self.principal is not None:
            self._previous = self._mechanism, self.principal
        if self._previous is not None:
            self._begun_ms = now_ms
        self._mechanism = mechanism
        self._exchange = self._mechanisms.begin[mechanism]()
        self.takes_bare_tokens = version == 0
        self.principal = None
        self.state = SaslState.AUTHENTICATE
        return ErrorCode.none

    def authenticate(self, token: bytes, wall_clock_ms: int) -> AuthenticateAnswer:
        """Take one token of the client; a response with an error is the last one, but for one.

        A client that has a principal and has not begun an exchange only receives ILLEGAL_SASL_STATE.
        """
        exchange = self._exchange
        if self.state is not SaslState.AUTHENTICATE or exchange is None:
            return AuthenticateAnswer(
                error_code=ErrorCode.illegal_sasl_state,
                client_message="SaslAuthenticate request received after successful authentication",
            )
        assert self._mechanism is not None
        try:
            self._check_mechanism(self._mechanism)
            answer = exchange.respond(token)
            if exchange.principal is None:
                return AuthenticateAnswer(answer)
            self._check_principal(exchange.principal)
        except SaslError as error:
            what = "authentication" if self._previous is None else "re-authentication"
            client_message = (
                f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            )
            client_message = error.client_message or f"{client_message}{self._mechanism}"
            self._fail()
            return AuthenticateAnswer(
                error_code=ErrorCode.sasl_authentication_failed,
                client_message=client_message,
                reason=str(error),
            )
        self.principal = exchange.principal
        self._session_lifetime_ms = self._lifetime_ms(exchange.expires_ms, wall_clock_ms)
        self._exchange = self._previous = None
        self.takes_bare_tokens = False
        self.state = SaslState.COMPLETE
        return AuthenticateAnswer(answer, session_lifetime_ms=self._session_lifetime_ms)

    def certified(self, principal: Principal) -> None:
        """Take the principal of the client's certificate; with SASL it has no effect yet."""
        if self.principal is not None:
            self.principal = principal

    def expire(self) -> None:
        """End the present session."""
        if self.state is SaslState.COMPLETE and self._mechanism is not None and self.principal is not None:
            self._previous = self._mechanism, self.principal
            self.principal = None
            self.state = SaslState.EXPIRED

    def _may_renew(self, now_ms: int) -> bool:
        if not self._session_lifetime_ms:
            return False
        return self._begun_ms is None or now_ms - self._begun_ms >= MIN_REAUTHENTICATION_MS

    def _check_mechanism(self, mechanism: str) -> None:
        if self._previous is not None and self._previous[0] != mechanism:
            text = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._previous[0]}'"
            )
            raise SaslError(text, text)

    def _check_principal(self, principal: Principal) -> None:
        if self._previous is not None and self._previous[1] != principal:
            before = ".".join(self._previous[1])
            text = f"Cannot change principals during re-authentication from {before}: {'.'.join(principal)}"
            raise SaslError(text, text)

    def _lifetime_ms(self, expires_ms: int | None, wall_clock_ms: int) -> int:
        limits = [] if expires_ms is None else [max(expires_ms - wall_clock_ms, 1)]
        assert self._mechanism is not None
        configured_ms = (self._mechanisms.max_reauthentication_ms or {}).get(self._mechanism, 0)
        if configured_ms > 0:
            limits.append(configured_ms)
        return min(*limits, MAX_SESSION_MS) if limits else 0

    def _fail(self) -> None:
        self.principal = None
        self._exchange = None
        self.state = SaslState.FAILED
