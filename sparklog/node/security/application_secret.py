"""The secret with which driver and brokers of one application authenticate each other.

The driver generates it; it travels to brokers with Spark's task closures only. Every connection between them
begins with a SCRAM exchange under a mechanism of its own, on any listener: neither end sends the secret, and
each proves that it has it. Requests on such a connection come from the principal `CLUSTER_PRINCIPAL`, which
no user's credentials can have: users are of the type `User`.

A restarted application has another secret, so processes left over from the former one cannot authenticate.

The port of a dead broker is free for any process of its host, and the other brokers connect to it for a
while. Such a process does not get the secret, but could relay the exchange to another broker and be
authenticated there. So the connecting side includes the address it has connected to in what it signs, and the
other side accepts its own addresses only.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cache
from hmac import digest
from secrets import token_hex
from typing import Final, Self

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import ClientMechanism, ServerMechanism
from sparklog.node.security.sasl.scram import (
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    ScramCredential,
    ScramLogin,
    ScramVerification,
)

CLUSTER_PRINCIPAL: Final = Principal("Application", "sparklog")
"""Driver and brokers. One object a process, compared by identity, so that a name in a request never equals
it.
"""
CLUSTER_MECHANISM: Final = "SPARKLOG-INSIDE"
SESSION: Final = Principal("Application", "session")
"""The application's sessions, on listeners with authentication. ACLs apply to them."""
SESSION_MECHANISM: Final = "SPARKLOG-SESSION"


@dataclass(frozen=True, slots=True)
class ApplicationSecret:
    """The application's secret; its representation shows nothing of it."""

    _value: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        return cls(token_hex(32))

    @property
    def tls_seed(self) -> bytes:
        """The seed of the cluster's internal certificates (`tls.cluster_certificates`)."""
        return bytes.fromhex(self._value)

    @property
    def of_sessions(self) -> str:
        """The secret of sessions, from which the application's own cannot be computed."""
        return digest(bytes.fromhex(self._value), b"sparklog sessions", "sha256").hex()

    def login(self, address: str) -> ClientMechanism:
        """Begin an exchange as the side that has connected to `address`, which is `host:port`."""
        return _login(CLUSTER_MECHANISM, address, self._value)

    def verification(self, addresses: Container[str]) -> Callable[[], ServerMechanism]:
        """Return the beginning of an exchange as the accepting side, which has these addresses.

        Addresses may be added later; until then no connection is authenticated.
        """
        return _verification(self._value, addresses, CLUSTER_PRINCIPAL)

    def verifications(self, addresses: Container[str]) -> Mapping[str, Callable[[], ServerMechanism]]:
        """Return the same by mechanism, for listeners of sessions too."""
        return {
            CLUSTER_MECHANISM: self.verification(addresses),
            SESSION_MECHANISM: _verification(self.of_sessions, addresses, SESSION),
        }


@dataclass(frozen=True, slots=True)
class SessionSecret:
    """The secret of sessions; calling it begins an exchange."""

    _value: str = field(repr=False)

    def __call__(self, address: str) -> ClientMechanism:
        """Begin an exchange as a session that has connected to `address`, which is `host:port`."""
        return _login(SESSION_MECHANISM, address, self._value)


def _login(mechanism: str, address: str, value: str) -> ClientMechanism:
    return ScramLogin(
        SCRAM_SHA_256,
        address,
        value,
        name=mechanism,
        max_iterations=MIN_ITERATIONS,  # bounds the work on event loops if the server is an impostor
    )


def _verification(
    value: str, addresses: Container[str], principal: Principal
) -> Callable[[], ServerMechanism]:
    credential = _credential(value)

    def begin() -> ServerMechanism:
        return ScramVerification(
            SCRAM_SHA_256, lambda name: credential if name in addresses else None, lambda name: principal
        )

    return begin


@cache
def _credential(value: str) -> ScramCredential:
    return ScramCredential.of_password(SCRAM_SHA_256, value, MIN_ITERATIONS)
