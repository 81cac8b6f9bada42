"""Listener addresses of brokers and controllers, and security protocols."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

CONTROLLER_LISTENER: Final = "CONTROLLER"
"""The name of the listeners of the metadata quorum."""


class SecurityProtocol(IntEnum):
    """Kafka's security protocols under their wire numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def is_encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> str:
        """`host:port`, without brackets around IPv6."""
        return f"{self.host}:{self.port}"
