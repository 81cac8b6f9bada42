"""What driver and brokers of one application know each other by: a secret that the driver makes at its start.

It travels to the brokers with Spark's task closures and nowhere else. Every connection between them begins
with it, by SCRAM under a name of its own, on whatever listener: neither end ever sends the secret, and each
is shown that the other one has it. What comes by such a connection comes from `INSIDE`, whom no user's
credentials can make: users are of the type `User`.

An application that is started again has another secret, so what is left of the former one is a stranger.

Ports of brokers that have died are anybody's to take on their host, and the others connect there for a while.
Whoever is there does not get the secret, but could pass what is said on to another broker, and would be taken
for who has logged in to it. So the side that connects says, and signs, which address it has connected to, and
the other side knows nobody by addresses that are not its own.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cache
from hmac import digest
from secrets import token_hex
from typing import Final, Self

from sparklog.acls.acl import Principal
from sparklog.security.sasl.mechanism import ClientMechanism, ServerMechanism
from sparklog.security.sasl.scram import (
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    ScramCredential,
    ScramLogin,
    ScramVerification,
)

INSIDE: Final = Principal("Application", "sparklog")
"""Driver and brokers. A process has it once: it is asked for by identity, so that a name that came in a
request is never taken for it."""
INSIDE_MECHANISM: Final = "SPARKLOG-INSIDE"
SESSION: Final = Principal("Application", "session")
"""The sessions of the application, where a listener asks everybody who he is. They may do what ACLs say."""
SESSION_MECHANISM: Final = "SPARKLOG-SESSION"


@dataclass(frozen=True, slots=True)
class ApplicationSecret:
    """The secret; what is shown of it says nothing."""

    _value: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Return one that nobody has had."""
        return cls(token_hex(32))

    @property
    def tls_seed(self) -> bytes:
        """What the certificates of the inside are derived from (`tls.inside`)."""
        return bytes.fromhex(self._value)

    @property
    def of_sessions(self) -> str:
        """What sessions log in with: who has it has not the secret itself."""
        return digest(bytes.fromhex(self._value), b"sparklog sessions", "sha256").hex()

    def login(self, address: str) -> ClientMechanism:
        """Begin an exchange as the side that has connected to `address`, which is `host:port`."""
        return _login(INSIDE_MECHANISM, address, self._value)

    def verification(self, addresses: Container[str]) -> Callable[[], ServerMechanism]:
        """Return what begins an exchange as the side that is connected to, and has these addresses.

        They may become known later; until then nobody is inside.
        """
        return _verification(self._value, addresses, INSIDE)

    def verifications(self, addresses: Container[str]) -> Mapping[str, Callable[[], ServerMechanism]]:
        """Return the same for listeners to which sessions come, too, by mechanisms."""
        return {
            INSIDE_MECHANISM: self.verification(addresses),
            SESSION_MECHANISM: _verification(self.of_sessions, addresses, SESSION),
        }


@dataclass(frozen=True, slots=True)
class SessionSecret:
    """The secret of sessions; begins an exchange whenever it is called."""

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
        max_iterations=MIN_ITERATIONS,  # on event loops, for whoever has taken a broker's port
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
