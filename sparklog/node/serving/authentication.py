"""Authentication of a listener's connections: the SASL requests and their consequences.

A connection has a principal from the start on a listener without SASL, and otherwise once the SASL exchange
is complete (each connection has an authenticator, see `machine/authenticator.py`). After a failure the
response is sent only after `connection.failed.authentication.delay.ms`, and the connection is closed behind
it, which slows down guessing of passwords.

Source: Kafka's SaslServerAuthenticator, and Selector.delayCloseOnAuthenticationFailure.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, cast

from sparklog.node.acls.acl import Principal
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.serving.machine.authenticator import AuthenticateAnswer, Authenticator, Mechanisms
from sparklog.node.serving.requests import ANONYMOUS, NO_RESPONSE, Api, Request, RespondThenClose
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoded import RawResponse
from sparklog.protocol.errors import ErrorCode

UNAUTHENTICATED_MAX_BYTES: Final = 512 << 10
"""Largest frame of an unauthenticated connection, as in Kafka."""
DEFAULT_FAILED_DELAY_MS: Final = 100


class _Authenticated(Protocol):
    """The part of a connection that these handlers use."""

    authenticator: Authenticator

    def authenticated(self) -> None:
        """Adopt the authenticator's present principal."""

    def begin_session(self, lifetime_ms: int) -> None:
        """Begin a session: the principal is valid for `lifetime_ms`."""


class Authentication:
    def __init__(
        self,
        mechanisms: Mechanisms | None = None,
        *,
        principal: Principal | None = ANONYMOUS,
        failed_delay_ms: int = DEFAULT_FAILED_DELAY_MS,
        max_receive_bytes: int = UNAUTHENTICATED_MAX_BYTES,
        ready: Sequence[asyncio.Event] = (),
        upkeep: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`principal` is that of a new connection; None where SASL has to establish it.

        Clients wait for the events `ready`: before, credentials are not loaded. `upkeep` keeps the
        credentials fresh.
        """
        self._ready = ready
        self._upkeep = upkeep
        self._keeping: asyncio.Task[None] | None = None
        self._mechanisms = Mechanisms({}) if mechanisms is None else mechanisms
        self._principal = principal
        self._failed_delay_s = failed_delay_ms / 1000
        self.max_receive_bytes = max_receive_bytes

    def start(self) -> None:
        """Start the upkeep of credentials, until `close`; on the listener's loop."""
        if self._upkeep is not None:
            self._keeping = asyncio.get_running_loop().create_task(self._upkeep())

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    def begin(self) -> Authenticator:
        return Authenticator(self._mechanisms, self._principal)

    def apis(self) -> dict[ApiKey, Api]:
        """Return the rows of the SASL requests in a listener's table."""
        return {
            ApiKey.SASL_HANDSHAKE: Api(0, 1, self._handshake, many=False),
            ApiKey.SASL_AUTHENTICATE: Api(0, 2, self._authenticate, many=False),
        }

    def _handshake(self, request: Request) -> Any:
        offered = self._mechanisms.offered
        if request.body.mechanism not in offered or all(event.is_set() for event in self._ready):
            return self._begun(request)
        return self._begun_later(request)

    async def _begun_later(self, request: Request) -> Any:
        for event in self._ready:
            await event.wait()
        return self._begun(request)

    def _begun(self, request: Request) -> Any:
        from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

        connection = cast(_Authenticated, request.connection)
        mechanism = request.body.mechanism
        error_code = connection.authenticator.handshake(mechanism, request.api_version, monotonic_ms())
        connection.authenticated()
        response = SaslHandshakeResponse(error_code=error_code, mechanisms=self._mechanisms.offered)
        if error_code is ErrorCode.unsupported_sasl_mechanism:
            reason = f"it asks for the SASL mechanism {mechanism[:100]!r}"
            return self._refused(RespondThenClose(response, error_code.name, reason))
        return response

    def _authenticate(self, request: Request) -> Any:
        connection = cast(_Authenticated, request.connection)
        authenticator = connection.authenticator
        is_bare = authenticator.takes_bare_tokens
        answer = authenticator.authenticate(request.body.auth_bytes, wall_clock_ms())
        connection.authenticated()
        if answer.session_lifetime_ms:
            connection.begin_session(answer.session_lifetime_ms)
        if is_bare:
            # A refused client learns no reason.
            response = NO_RESPONSE if answer.reason is not None else RawResponse(answer.token)
        else:
            response = _response(answer)
        if answer.reason is None:
            return response
        return self._refused(RespondThenClose(response, answer.error_code.name, answer.reason))

    async def _refused(self, response: RespondThenClose) -> RespondThenClose:
        await asyncio.sleep(self._failed_delay_s)
        return response


def _response(answer: AuthenticateAnswer) -> Any:
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse

    return SaslAuthenticateResponse(
        error_code=answer.error_code,
        error_message=answer.client_message,
        auth_bytes=answer.token,
        session_lifetime=timedelta(milliseconds=answer.session_lifetime_ms),
    )
