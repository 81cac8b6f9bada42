"""The delegation token APIs where tokens are disabled: byte for byte as Kafka 4.3.1 answers."""

from typing import Any, Final

import pytest

from sparklog.executor.api.delegation_tokens import DelegationTokenHandlers
from sparklog.node.acls.acl import AclOperation, AclResourceType, Principal
from sparklog.node.apis.table import ROWS
from sparklog.node.authorization.guards.guard import filled, item_type
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import ANONYMOUS, Request
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.frames import encode_response_frame, request_codec
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.authorization.guards.guarding import Permission, granted

CONFIG: Final = BrokerConfig.from_mapping(
    {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.location": "keys.pem",
        "ssl.keystore.type": "PEM",
    }
)
HANDLERS: Final = DelegationTokenHandlers(CONFIG).handlers()
ANN: Final = Principal("User", "ann")
CREATE: Final = ApiKey.CREATE_DELEGATION_TOKEN
NOT_ALLOWED: Final = ErrorCode.delegation_token_request_not_allowed
DISABLED: Final = ErrorCode.delegation_token_auth_disabled
BOB_OWNS: Final = {"owner_principal_type": "User", "owner_principal_name": "bob"}


def asked(
    api_key: ApiKey,
    version: int,
    listener: str,
    principal: Principal = ANN,
    *,
    permissions: tuple[Permission, ...] | None = None,
    renewer_type: str = "User",
    **fields: Any,
) -> Any:
    """Return the answer on a listener; `permissions` are those that an authorizer knows of."""
    body_type = request_type(api_key, version)
    if api_key is CREATE:
        renewer = item_type(body_type, "renewers")
        fields["renewers"] = (filled(renewer, principal_type=renewer_type, principal_name="carl"),)
    body = filled(body_type, **fields)
    peer: Any = None
    request = Request(api_key, version, 1, "client", body, memoryview(b""), peer, listener)
    request.principal = principal
    request.access = None if permissions is None else granted(permissions, api_key, principal)
    return HANDLERS[api_key](request)


def sent(api_key: ApiKey, version: int, answer: Any) -> bytes:
    """Return the body of an answer as it is sent."""
    codec = request_codec(api_key, version)
    header_bytes = 9 if codec.response_header_flexible else 8
    return b"".join(map(bytes, encode_response_frame(codec, 1, answer)))[header_bytes:]


def text(value: str, *, flexible: bool) -> bytes:
    """Return a string as it lies in a response."""
    length = bytes([len(value) + 1]) if flexible else len(value).to_bytes(2, "big")
    return length + value.encode()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("listener", "error_code", "time"), [("PLAINTEXT", NOT_ALLOWED, -1), ("SASL_PLAINTEXT", DISABLED, 0)]
)
def test_creation_names_owner_and_requester_and_gives_times_as_kafka_does(
    version: int, listener: str, error_code: ErrorCode, time: int
) -> None:
    """Java's client reads all fields before it looks at the error."""
    flexible = version >= 2
    owner = "bob" if version >= 3 else "ann"
    named = [("User", owner), ("User", "ann")] if version >= 3 else [("User", owner)]
    expected = int(error_code.value).to_bytes(2, "big")
    expected += b"".join(text(part, flexible=flexible) for pair in named for part in pair)
    expected += time.to_bytes(8, "big", signed=True) * 3
    expected += text("", flexible=flexible) + (b"\1" if flexible else bytes(4)) + bytes(4)
    expected += b"\0" if flexible else b""
    answer = asked(CREATE, version, listener, **(BOB_OWNS if version >= 3 else {}))
    assert sent(CREATE, version, answer) == expected


@pytest.mark.parametrize("api_key", [ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN])
@pytest.mark.parametrize(
    ("listener", "error_code", "time"), [("PLAINTEXT", NOT_ALLOWED, -1), ("SASL_PLAINTEXT", DISABLED, 0)]
)
def test_renewal_and_expiry_answer_with_the_time_that_kafka_gives(
    api_key: ApiKey, listener: str, error_code: ErrorCode, time: int
) -> None:
    """A tool that prints the time prints the same as with Kafka."""
    said = int(error_code.value).to_bytes(2, "big") + time.to_bytes(8, "big", signed=True) + bytes(4)
    assert sent(api_key, 1, asked(api_key, 1, listener, hmac=b"x")) == said
    assert sent(api_key, 2, asked(api_key, 2, listener, hmac=b"x")) == said + b"\0"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_description_tells_of_no_token(version: int) -> None:
    """No owners at all are no error in Kafka, but only where tokens are enabled."""
    api_key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    for owners in (None, ()):
        for listener, error_code in (("PLAINTEXT", NOT_ALLOWED), ("SASL_PLAINTEXT", DISABLED)):
            answer = asked(api_key, version, listener, owners=owners)
            assert (answer.error_code, answer.tokens) == (error_code, ())


@pytest.mark.parametrize(("principal", "error_code"), [(ANONYMOUS, NOT_ALLOWED), (ANN, DISABLED)])
def test_connection_by_tls_proves_an_identity_only_with_a_certificate(
    principal: Principal, error_code: ErrorCode
) -> None:
    """One-way TLS says nothing about the client."""
    assert asked(ApiKey.RENEW_DELEGATION_TOKEN, 2, "SSL", principal, hmac=b"x").error_code is error_code


def test_creation_for_another_owner_asks_for_create_tokens_on_the_user() -> None:
    """KIP-373. The connection comes first, then the permission, then the renewers' types."""
    may: Permission = (AclOperation.CREATE_TOKENS, AclResourceType.USER, "User:bob")
    failed = ErrorCode.delegation_token_authorization_failed
    no_user = ErrorCode.invalid_principal_type
    plain = asked(CREATE, 3, "PLAINTEXT", permissions=(), **BOB_OWNS)
    denied = asked(CREATE, 3, "SASL_PLAINTEXT", permissions=(), renewer_type="Group", **BOB_OWNS)
    of_group = asked(CREATE, 3, "SASL_PLAINTEXT", permissions=(may,), renewer_type="Group", **BOB_OWNS)
    allowed = asked(CREATE, 3, "SASL_PLAINTEXT", permissions=(may,), **BOB_OWNS)
    own = asked(CREATE, 3, "SASL_PLAINTEXT", permissions=())
    answers = [answer.error_code for answer in (plain, denied, of_group, allowed, own)]
    assert answers == [NOT_ALLOWED, failed, no_user, DISABLED, DISABLED]


def test_creation_for_an_owner_without_a_type_is_refused_in_the_name_of_anonymous() -> None:
    """Kafka fails on it, and answers with the request's getErrorResponse."""
    with pytest.raises(KafkaError) as raised:
        asked(CREATE, 3, "SASL_PLAINTEXT", owner_principal_type=None, owner_principal_name="bob")
    assert raised.value.error_code is ErrorCode.unknown_server_error
    answer = ROWS[CREATE].refused(filled(request_type(CREATE, 3)), raised.value)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("ANONYMOUS", "ANONYMOUS")
