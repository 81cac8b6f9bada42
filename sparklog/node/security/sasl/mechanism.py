"""A SASL mechanism: one exchange of tokens between client and server (RFC 4422).

An exchange serves one authentication or reauthentication of a connection, and is used once.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from sparklog.node.acls.acl import Principal


class SaslError(Exception):
    """The peer has not authenticated.

    `client_message` is the error message for the client, which must not reveal more than the client knows;
    None for the message of all wrong credentials.
    """

    def __init__(self, message: str, client_message: str | None = None) -> None:
        super().__init__(message)
        self.client_message = client_message


class ServerMechanism(Protocol):
    principal: Principal | None
    """The client's principal; None until the exchange is complete."""
    expires_ms: int | None
    """The expiration of the credentials, by the wall clock; None if they do not expire."""

    def respond(self, token: bytes) -> bytes:
        """Process the client's token; return the answer.

        Raises:
            SaslError: authentication has failed; the exchange is over.
        """


class ClientMechanism(Protocol):
    name: str

    def first(self) -> bytes: ...

    def respond(self, token: bytes) -> bytes | None:
        """Process the server's token; return the next one, None if the exchange is complete.

        Raises:
            SaslError: the server has not authenticated.
        """


Login: TypeAlias = Callable[[str], ClientMechanism]
"""Begins an exchange with the server at `host:port`, with the credentials of one user."""
