"""How a client says who it is, what the clients, asyncio and blocking, have in common (KIP-43, KIP-152).

SaslHandshake names the mechanism, SaslAuthenticate carries the tokens of its exchange, both in versions that
Kafka has had since 2.5. Nothing else may be sent before the exchange is complete, and nothing is to be sent
if the server has not proved that it knows the secret, too.
"""

from collections.abc import Generator
from typing import Any, Final

from sparklog.node.security.sasl.mechanism import ClientMechanism, SaslError
from sparklog.protocol.errors import ErrorCode, KafkaError

MAX_ANSWER_BYTES: Final = 512 << 10
"""How long an answer may be of one that has not proved yet who it is: as much as it takes of a client."""


def authentication_requests(mechanism: ClientMechanism, peer: str) -> Generator[Any, Any, int]:
    """Yield the requests to send, and be sent each response; return how long the session is, 0 for ever.

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
