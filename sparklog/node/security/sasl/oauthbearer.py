"""OAUTHBEARER (RFC 7628, KIP-255): authentication by a token of an identity provider.

    client    n,[a=<authorization id>],^A auth=Bearer <token> ^A [<extension>=<value> ^A ...] ^A
    server    nothing, or {"status":"invalid_token"}, whereupon the client sends ^A and is refused

`sparklog.node.security.oauth` validates tokens; this is the exchange. An invalid token is answered as in RFC
7628, then refused with the same text. Extensions (KIP-342) have to be well-formed; none is used.

Source: Kafka's OAuthBearerSaslServer, OAuthBearerSaslClient, OAuthBearerClientInitialResponse.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError

OAUTHBEARER: Final = "OAUTHBEARER"
MAX_TOKEN_BYTES: Final = 32 << 10
"""Longer tokens are refused unread: they come from unauthenticated clients, and the event loop parses
them."""
_MAX_MESSAGE_BYTES: Final = MAX_TOKEN_BYTES + (8 << 10)
_MAX_EXTENSIONS: Final = 100
_SHOWN: Final = 100
"""The characters logged of an unauthenticated client's text."""

_SEPARATOR: Final = "\x01"
_AROUND_EXTENSIONS: Final = 3
"""The separators of a message without extensions: before the token, after it, and at the end."""
_HEADER: Final = re.compile(r"n,(?:a=(?P<authorization_id>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_AUTHORIZATION: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH: Final = "auth"


@dataclass(frozen=True, slots=True)
class BearerToken:
    principal_name: str
    expires_ms: int
    """By the wall clock."""


class TokenError(Exception):
    """An invalid token. The message is for the log, and shows nothing of the token but its claims."""

    def __init__(self, reason: str, missing_scope: str | None = None) -> None:
        """`missing_scope` is a required scope that the token lacks."""
        super().__init__(reason)
        self.missing_scope = missing_scope

    @property
    def client_message(self) -> str:
        """The error for the client, as in RFC 7628."""
        if self.missing_scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.missing_scope}"}}'


class OAuthBearerVerification:
    def __init__(self, accepted: Callable[[str], BearerToken]) -> None:
        """`accepted` returns the content of a token, or raises a `TokenError`."""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._accepted = accepted
        self._refusal: TokenError | None = None

    def respond(self, token: bytes) -> bytes:
        if self._refusal is not None:
            raise SaslError(str(self._refusal), self._refusal.client_message)
        authorization_id, bearer = _initial_response(token)
        try:
            accepted = self._accepted(bearer)
        except TokenError as error:
            self._refusal = error
            return error.client_message.encode()
        name = accepted.principal_name
        if authorization_id not in ("", name):
            raise SaslError(
                f"the token of {name[:_SHOWN]!r} requests the authorization id {authorization_id[:_SHOWN]!r}",
                "Authentication failed: Client requested an authorization id "
                f"({authorization_id[:_SHOWN]}) that is different from the token's principal name ({name})",
            )
        self.principal = Principal("User", name)
        self.expires_ms = accepted.expires_ms
        return b""


class OAuthBearerLogin:
    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._refusal: bytes | None = None

    def first(self) -> bytes:
        pairs = [f"{_AUTH}=Bearer {self._token}", *map("=".join, self._extensions.items())]
        return _SEPARATOR.join(("n,,", *pairs, _SEPARATOR)).encode()

    def respond(self, token: bytes) -> bytes | None:
        if self._refusal is not None:
            raise SaslError(f"the token is not accepted: {self._refusal.decode(errors='replace')[:1000]}")
        if not token:
            return None
        self._refusal = token
        return _SEPARATOR.encode()  # acknowledges the error; the server then refuses


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Check names and values.

    Raises:
        SaslError: one is malformed; the message shows no value.
    """
    for name, value in extensions.items():
        if name == _AUTH or not _EXTENSION_NAME.fullmatch(name):
            raise SaslError(f"the name of extension {name[:_SHOWN]!r} is not well-formed")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise SaslError(f"the value of extension {name[:_SHOWN]!r} is not well-formed")


def _initial_response(message: bytes) -> tuple[str, str]:
    """Return the authorization id, empty if there is none, and the token."""
    if len(message) > _MAX_MESSAGE_BYTES:
        raise SaslError(f"a message of {len(message)} bytes, of at most {_MAX_MESSAGE_BYTES}")
    extensions = message.count(_SEPARATOR.encode()) - _AROUND_EXTENSIONS
    if extensions > _MAX_EXTENSIONS:
        raise SaslError(f"a message with {extensions} extensions, of at most {_MAX_EXTENSIONS}")
    try:
        head, *pairs = message.decode().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise SaslError("a message that is not UTF-8") from error
    header = _HEADER.fullmatch(head)
    if header is None or len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise SaslError("a malformed first message")
    properties = {}
    for pair in pairs[:-2]:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SaslError("a malformed first message")
        properties[name] = value
    authorization = _AUTHORIZATION.fullmatch(properties.pop(_AUTH, ""))
    if authorization is None or authorization["scheme"].lower() != "bearer":
        raise SaslError("a first message without a bearer token")
    check_extensions(properties)
    if len(authorization["token"]) > MAX_TOKEN_BYTES:
        raise SaslError(f"a token of {len(authorization['token'])} bytes, of at most {MAX_TOKEN_BYTES}")
    authorization_id = header["authorization_id"] or ""
    return authorization_id.replace("=2C", ",").replace("=3D", "="), authorization["token"]
