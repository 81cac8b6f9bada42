"""A client's name and password, and its login with them. It may travel to a task; it is never shown."""

from dataclasses import dataclass, field
from typing import Final

from sparklog.node.security.sasl.mechanism import ClientMechanism
from sparklog.node.security.sasl.plain import PLAIN, PlainLogin
from sparklog.node.security.sasl.scram import SCRAM_ALGORITHMS, ScramLogin

PASSWORD_MECHANISMS: Final = (PLAIN, *SCRAM_ALGORITHMS)


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A login with a password; calling it begins an exchange."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def __call__(self, address: str) -> ClientMechanism:
        """Return a new exchange; the same at every address."""
        if self.mechanism == PLAIN:
            return PlainLogin(self.user, self.password)
        return ScramLogin(self.mechanism, self.user, self.password)
