"""PLAIN (RFC 4616): the password as it is, for listeners that are encrypted.

    [authorization id] NUL user NUL password

Passwords are compared in constant time, that of a user who is not known with one that nobody has, and refused
in Kafka's words (PlainSaslServer).
"""

from collections.abc import Mapping
from hmac import compare_digest
from secrets import token_bytes
from typing import Final

from sparklog.acls.acl import Principal
from sparklog.security.sasl.mechanism import SaslError

PLAIN: Final = "PLAIN"
_NOBODYS: Final = token_bytes(32)
_SHOWN: Final = 100
"""So much of a name is logged: a stranger's may be half a megabyte."""


class PlainVerification:
    """The server's half of an exchange."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """Know users by their passwords."""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._passwords = passwords

    def respond(self, token: bytes) -> bytes:
        """See `ServerMechanism`."""
        try:
            parts = token.decode().split("\0", 3)
        except UnicodeDecodeError as error:
            raise _refused("a message that is no text") from error
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
                f"user {user[:_SHOWN]!r}: there is no such user, or another password is his",
                "Authentication failed: Invalid username or password",
            )
        if authorization_id not in ("", user):
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = Principal("User", user)
        return b""


class PlainLogin:
    """The client's half of an exchange."""

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        """See `ClientMechanism`."""
        return f"\0{self._user}\0{self._password}".encode()

    def respond(self, token: bytes) -> bytes | None:
        """See `ClientMechanism`."""
        return None


def _refused(text: str) -> SaslError:
    return SaslError(text, text)
