"""By what the sessions of an application get into its own cluster: the driver makes it and announces it.

They speak the protocol of the driver's first listener, and trust whom driver and brokers trust. Where that
listener asks everybody who he is, by SASL or a certificate, they say that they are `SESSION`, by a secret and
a certificate of their own. Neither makes anybody driver or broker, nor proves to a client that he is one.
"""

import json
from dataclasses import asdict, dataclass, field

from sparklog.endpoints import SecurityProtocol
from sparklog.security.inside import SessionSecret


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAccess:
    """What a session needs to know."""

    protocol: str = SecurityProtocol.PLAINTEXT.name
    authority_pem: str = ""
    """Who signs the certificates of the inside; empty where nothing is encrypted. No secret."""
    key_pem: str = field(default="", repr=False)
    certificate_pem: str = field(default="", repr=False)
    """What a session shows; empty where nobody has to."""
    secret: str = field(default="", repr=False)
    """What it logs in with; empty where nobody has to."""

    @property
    def login(self) -> SessionSecret | None:
        """How a session logs in; None where nobody has to."""
        return SessionSecret(self.secret) if self.secret else None

    def to_text(self) -> str:
        """Return it as a line of text, secrets included."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "SessionAccess":
        """Return what `to_text` has written."""
        return cls(**json.loads(text))


PLAIN_ACCESS = SessionAccess()
"""Of a listener that asks nobody, and is not encrypted."""
