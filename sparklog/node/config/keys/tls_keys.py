"""Kafka's `ssl.` keys of a broker: stores, protocols and client authentication of SSL and SASL_SSL listeners.

Each may be set for one listener alone. Driver and brokers authenticate each other with certificates of their
own (`sparklog.node.security.tls.cluster_certificates`), so these keys do not concern connections that they
open.
"""

from dataclasses import dataclass

from sparklog.node.config.definition import LIST, PASSWORD, STRING, config_key, one_of, some_of
from sparklog.node.config.password import Password
from sparklog.node.security.tls.settings import DEFAULT_PROTOCOLS, StoreSettings, TlsSettings


@dataclass(frozen=True, kw_only=True)
class TlsKeys:
    ssl_keystore_type: str = config_key(
        STRING,
        "JKS",
        "The type of the key store: PEM or PKCS12. A PKCS12 store is read under Kafka's default, too; a"
        " real JKS"
        " store has to be converted, and the error says how.",
        one_of("JKS", "PEM", "PKCS12"),
    )
    ssl_keystore_location: str | None = config_key(
        STRING,
        None,
        "The file with the private key and its certificates, on the hosts of the driver and of the brokers.",
    )
    ssl_keystore_password: Password | None = config_key(PASSWORD, None, "The password of a PKCS12 key store.")
    ssl_keystore_key: Password | None = config_key(
        PASSWORD, None, "Instead of a file: the private key as PEM."
    )
    ssl_keystore_certificate_chain: Password | None = config_key(
        PASSWORD, None, "Beside ssl.keystore.key: its certificates as PEM."
    )
    ssl_key_password: Password | None = config_key(
        PASSWORD, None, "The password of an encrypted private key in PEM."
    )
    ssl_truststore_type: str = config_key(
        STRING,
        "JKS",
        "The type of the trust store, as for ssl.keystore.type.",
        one_of("JKS", "PEM", "PKCS12"),
    )
    ssl_truststore_location: str | None = config_key(
        STRING, None, "The file with the trusted certificates; without one the system's are trusted."
    )
    ssl_truststore_password: Password | None = config_key(
        PASSWORD, None, "The password of a PKCS12 trust store."
    )
    ssl_truststore_certificates: Password | None = config_key(
        PASSWORD, None, "Instead of a file: the trusted certificates as PEM."
    )
    ssl_client_auth: str = config_key(
        STRING,
        "none",
        "Whether clients have to show a certificate: required, requested (one that is shown must be good), or"
        " none. Holds for a listener of SASL_SSL only if it is set for it alone.",
        one_of("required", "requested", "none"),
    )
    ssl_principal_mapping_rules: str = config_key(
        STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes its principal: DEFAULT, which is the name as it is,"
        " and RULE:pattern/replacement/[LU], separated by commas; the first that matches wins.",
    )
    ssl_enabled_protocols: tuple[str, ...] = config_key(
        LIST, DEFAULT_PROTOCOLS, "The enabled versions of TLS.", some_of(*DEFAULT_PROTOCOLS)
    )
    ssl_cipher_suites: tuple[str, ...] = config_key(
        LIST,
        (),
        "The enabled cipher suites, by Java's names or OpenSSL's; empty for OpenSSL's"
        " defaults. Of TLS 1.3's all or none can be named.",
    )

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
