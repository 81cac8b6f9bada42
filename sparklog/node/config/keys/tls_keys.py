"""Kafka's `ssl.` keys of a broker: stores, protocols and client authentication of SSL and SASL_SSL listeners.

Each may be set for one listener alone. Driver and brokers authenticate each other with certificates of their
own (`sparklog.node.security.tls.cluster_certificates`), so these keys do not concern connections that they
open.
"""

from dataclasses import dataclass

from sparklog.node.config.key_table import broker_key
from sparklog.node.config.password import Password
from sparklog.node.security.tls.settings import StoreSettings, TlsSettings


@dataclass(frozen=True, kw_only=True)
class TlsKeys:
    ssl_keystore_type: str = broker_key("ssl.keystore.type")
    ssl_keystore_location: str | None = broker_key("ssl.keystore.location")
    ssl_keystore_password: Password | None = broker_key("ssl.keystore.password")
    ssl_keystore_key: Password | None = broker_key("ssl.keystore.key")
    ssl_keystore_certificate_chain: Password | None = broker_key("ssl.keystore.certificate.chain")
    ssl_key_password: Password | None = broker_key("ssl.key.password")
    ssl_truststore_type: str = broker_key("ssl.truststore.type")
    ssl_truststore_location: str | None = broker_key("ssl.truststore.location")
    ssl_truststore_password: Password | None = broker_key("ssl.truststore.password")
    ssl_truststore_certificates: Password | None = broker_key("ssl.truststore.certificates")
    ssl_client_auth: str = broker_key("ssl.client.auth")
    ssl_principal_mapping_rules: str = broker_key("ssl.principal.mapping.rules")
    ssl_enabled_protocols: tuple[str, ...] = broker_key("ssl.enabled.protocols")
    ssl_cipher_suites: tuple[str, ...] = broker_key("ssl.cipher.suites")

    def tls_settings(self) -> TlsSettings:
        """Return the TLS settings; empty values are None."""
        return TlsSettings(
            keystore=StoreSettings(
                type=self.ssl_keystore_type,
                location=self.ssl_keystore_location or None,
                password=_secret(self.ssl_keystore_password),
                key=_secret(self.ssl_keystore_key),
                certificates=_secret(self.ssl_keystore_certificate_chain),
                key_password=_secret(self.ssl_key_password),
            ),
            truststore=StoreSettings(
                type=self.ssl_truststore_type,
                location=self.ssl_truststore_location or None,
                password=_secret(self.ssl_truststore_password),
                certificates=_secret(self.ssl_truststore_certificates),
            ),
            client_auth=self.ssl_client_auth,
            enabled_protocols=self.ssl_enabled_protocols,
            cipher_suites=self.ssl_cipher_suites,
            principal_mapping_rules=self.ssl_principal_mapping_rules,
        )


def _secret(password: Password | None) -> str | None:
    return (password.value or None) if password is not None else None
