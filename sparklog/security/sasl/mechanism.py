"""What a mechanism of SASL is: one exchange of tokens, of which each side has its half (RFC 4422).

An exchange is made for one connection, or for one more authentication of it, and is used once.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from sparklog.acls.acl import Principal


class SaslError(Exception):
    """The other side has not proved who it is.

    `told` is what the client is told of it, which must not tell more than he knows; None for what is said of
    any credentials that are not right.
    """

    def __init__(self, message: str, told: str | None = None) -> None:
        super().__init__(message)
        self.told = told


class ServerMechanism(Protocol):
    """The server's half."""

    principal: Principal | None
    """Who the client is; None until the exchange is complete."""
    expires_ms: int | None
    """When his credentials are no longer valid, by the wall clock; None if they last."""

    def respond(self, token: bytes) -> bytes:
        """Take in what the client has sent; return what is to be sent back.

        Raises:
            SaslError: he is refused; the exchange is over.
        """


class ClientMechanism(Protocol):
    """The client's half."""

    name: str
    """By which the server knows the mechanism."""

    def first(self) -> bytes:
        """Return what the client begins with."""

    def respond(self, token: bytes) -> bytes | None:
        """Take in what the server has sent; return what is to be sent next, None if the exchange is complete.

        Raises:
            SaslError: the server has not proved who it is.
        """


Login: TypeAlias = Callable[[str], ClientMechanism]
"""Begins an exchange, by the credentials that somebody has, with who is at the address `host:port`."""
