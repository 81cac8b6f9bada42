"""Where a broker or a controller listens, in Kafka's words."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

CONTROLLER_LISTENER: Final = "CONTROLLER"
"""The name of the listeners on which the quorum talks."""


class SecurityProtocol(IntEnum):
    """Kafka's security protocols under their wire numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def is_encrypted(self) -> bool:
        """Whether it is TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """Whether everybody has to say who he is, by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker or a controller listens, under the listener's name."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> str:
        """`host:port`, as whoever connects to it writes it."""
        return f"{self.host}:{self.port}"
