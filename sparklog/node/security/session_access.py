"""The credentials of an application's sessions for its own cluster: the driver creates and announces them.

Sessions use the protocol of the driver's first listener, and trust the cluster's internal authority. If that
listener authenticates clients, by SASL or a certificate, they authenticate as `SESSION`, by a secret and a
certificate of their own. Neither authenticates a process as driver or broker, to a server or to a client.
"""

import json
from dataclasses import asdict, dataclass, field

from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import SessionSecret


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAccess:
    protocol: str = SecurityProtocol.PLAINTEXT.name
    authority_pem: str = ""
    """The authority of the cluster's internal certificates; empty without encryption. Not a secret."""
    key_pem: str = field(default="", repr=False)
    certificate_pem: str = field(default="", repr=False)
    """The session's own certificate; empty if none is required."""
    secret: str = field(default="", repr=False)
    """The session's secret; empty without SASL."""

    @property
    def login(self) -> SessionSecret | None:
        """The login of a session; None without SASL."""
        return SessionSecret(self.secret) if self.secret else None

    def to_text(self) -> str:
        """Return one line of text, secrets included."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "SessionAccess":
        return cls(**json.loads(text))


PLAIN_ACCESS = SessionAccess()
"""For a listener without authentication and encryption."""
