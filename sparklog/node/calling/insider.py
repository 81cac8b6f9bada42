"""How driver and brokers connect to each other: who they say they are, and by which TLS."""

from typing import Final, NamedTuple

from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.inside import ApplicationSecret
from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.tls.inside import INSIDE_NAME, inside_tls
from sparklog.node.serving.tls.tls_stream import ClientTls


class Insider(NamedTuple):
    """What a connection between them begins with."""

    login: Login | None = None
    """Says who this is; None to those that do not ask."""
    tls: ClientTls | None = None
    """None: the listener speaks plain text."""

    @classmethod
    def to(cls, protocol: SecurityProtocol, secret: ApplicationSecret) -> "Insider":
        """Return it for listeners of that protocol. With TLS it makes certificates: milliseconds."""
        if not protocol.is_encrypted:
            return cls(secret.login)
        return cls(secret.login, ClientTls(inside_tls(secret.tls_seed).client_context, INSIDE_NAME))


STRANGER: Final = Insider()
"""One that nobody knows and that speaks plain text."""
