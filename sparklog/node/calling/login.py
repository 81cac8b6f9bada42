"""SASL login of a client, common to the asyncio and the blocking client (KIP-43, KIP-152).

SaslHandshake names the mechanism, SaslAuthenticate carries the tokens of its exchange, both in versions that
Kafka has had since 2.5. Nothing else may be sent before the exchange is complete, nor after it
if the server has not proved that it knows the secret, too.
"""

from collections.abc import Generator
from typing import Any, Final

from sparklog.node.security.sasl.mechanism import ClientMechanism, SaslError
from sparklog.protocol.errors import ErrorCode, KafkaError

MAX_ANSWER_BYTES: Final = 512 << 10
"""Largest response of an unauthenticated server: the bound that it has for a client's requests."""


def authentication_requests(mechanism: ClientMechanism, peer: str) -> Generator[Any, Any, int]:
    """Yield requests, to be sent each response; return the session's lifetime in ms, 0 for no end.

    Raises:
        KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED.
    """
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    response = yield SaslHandshakeRequest(mechanism=mechanism.name)
    if response.error_code is not ErrorCode.none:
        offered = ", ".join(response.mechanisms) or "none"
        raise KafkaError(
            response.error_code,
            f"{peer} does not authenticate by SASL mechanism {mechanism.name} here; it offers {offered}",
        )
    token: bytes | None = mechanism.first()
    while True:
        assert token is not None
        response = yield SaslAuthenticateRequest(auth_bytes=token)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, f"{peer}: {response.error_message}")
        try:
            token = mechanism.respond(response.auth_bytes)
        except SaslError as error:
            raise KafkaError(ErrorCode.sasl_authentication_failed, f"{peer}: {error}") from error
        if token is None:
            return int(response.session_lifetime.total_seconds() * 1000)
