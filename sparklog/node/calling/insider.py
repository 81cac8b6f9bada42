"""Login and TLS with which driver and brokers connect to each other."""

from typing import Final, NamedTuple

from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.inside import ApplicationSecret
from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.tls.inside import INSIDE_NAME, inside_tls
from sparklog.node.serving.tls.tls_stream import ClientTls


class Insider(NamedTuple):
    """Login and TLS of a connection within the cluster."""

    login: Login | None = None
    """None to listeners without SASL."""
    tls: ClientTls | None = None
    """None: the listener speaks plain text."""

    @classmethod
    def to(cls, protocol: SecurityProtocol, secret: ApplicationSecret) -> "Insider":
        """Return those for listeners of that protocol. With TLS it makes certificates: milliseconds."""
        if not protocol.is_encrypted:
            return cls(secret.login)
        return cls(secret.login, ClientTls(inside_tls(secret.tls_seed).client_context, INSIDE_NAME))


STRANGER: Final = Insider()
"""A connection without login and in plain text."""
