"""PLAIN (RFC 4616): the password in clear text, for encrypted listeners.

    [authorization id] NUL user NUL password

Passwords are compared in constant time, that of an unknown user with a random one, and refused in Kafka's
words (PlainSaslServer).
"""

from collections.abc import Mapping
from hmac import compare_digest
from secrets import token_bytes
from typing import Final

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError

PLAIN: Final = "PLAIN"
_NOBODYS: Final = token_bytes(32)
_SHOWN: Final = 100
"""The characters logged of a name: an unauthenticated client may send half a megabyte."""


class PlainVerification:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        """`passwords` are by user name."""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._passwords = passwords

    def respond(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0", 3)
        except UnicodeDecodeError as error:
            raise _refused("a message that is not UTF-8") from error
        if len(parts) != 3:
            raise _refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        known = self._passwords.get(user)
        expected = _NOBODYS if known is None else known.encode()
        if not compare_digest(password.encode(), expected):
            raise SaslError(
                f"user {user[:_SHOWN]!r}: no such user, or an incorrect password",
                "Authentication failed: Invalid username or password",
            )
        if authorization_id not in ("", user):
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = Principal("User", user)
        return b""


class PlainLogin:
    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password}".encode()

    def respond(self, token: bytes) -> bytes | None:
        return None


def _refused(text: str) -> SaslError:
    return SaslError(text, text)
