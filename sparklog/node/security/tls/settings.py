"""The values of Kafka's `ssl.` keys, of a listener or of a client."""

from dataclasses import dataclass, field
from typing import Final

DEFAULT_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")

ClientAuth = str
"""`none`, `requested` or `required`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """A key store or a trust store. Secrets are plain text here, and never shown."""

    type: str = "JKS"
    """Kafka's default, under which Java reads PKCS12, too."""
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    """A private key as PEM."""
    certificates: str | None = field(default=None, repr=False)
    """As PEM: the certificate chain of the key, or the trusted certificates."""
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        return (self.location, self.key, self.certificates) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Named after Kafka's keys."""

    keystore: StoreSettings = StoreSettings()
    truststore: StoreSettings = StoreSettings()
    client_auth: ClientAuth = "none"
    enabled_protocols: tuple[str, ...] = DEFAULT_PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    """Java's or OpenSSL's names; empty for OpenSSL's defaults."""
    endpoint_identification_algorithm: str = "https"
    """For clients: whether the server's certificate must name the host of the connection."""
    principal_mapping_rules: str = "DEFAULT"
    server_name: str | None = None
    """The host that the server's certificate must name; None: the host of the connection."""
    prefix: str = "ssl."
    """The prefix of the keys, for error messages."""
