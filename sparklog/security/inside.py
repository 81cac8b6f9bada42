"""What driver and brokers of one application know each other by: a secret that the driver makes at its start.

It travels to the brokers with Spark's task closures and nowhere else. Every connection between them begins
with it, by SCRAM under a name of its own, on whatever listener: neither end ever sends the secret, and each
is shown that the other one has it. What comes by such a connection comes from `INSIDE`, whom no user's
credentials can make: users are of the type `User`.

An application that is started again has another secret, so what is left of the former one is a stranger.
"""

from dataclasses import dataclass, field
from functools import cache
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

__all__ = ["INSIDE", "INSIDE_MECHANISM", "ApplicationSecret"]

INSIDE: Final = Principal("Application", "sparklog")
"""Driver and brokers. A process has it once: it is asked for by identity, so that a name that came in a
request is never taken for it."""
INSIDE_MECHANISM: Final = "SPARKLOG-INSIDE"
_USER: Final = "inside"


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

    def login(self) -> ClientMechanism:
        """Begin an exchange as the side that connects."""
        return ScramLogin(
            SCRAM_SHA_256,
            _USER,
            self._value,
            name=INSIDE_MECHANISM,
            max_iterations=MIN_ITERATIONS,  # on event loops, for whoever has taken a broker's port
        )

    def verification(self) -> ServerMechanism:
        """Begin an exchange as the side that is connected to."""
        credential = _credential(self._value)
        return ScramVerification(SCRAM_SHA_256, {_USER: credential}.get, lambda name: INSIDE)


@cache
def _credential(value: str) -> ScramCredential:
    return ScramCredential.of_password(SCRAM_SHA_256, value, MIN_ITERATIONS)
