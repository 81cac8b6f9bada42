"""The `kafka.ssl.*` options, with the meaning of Kafka's client settings of these names.

Files are read when connections are made: in the tasks, on the executors' hosts.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.node.security.session_access import SessionAccess
from sparklog.node.security.tls.cluster_certificates import CLUSTER_SERVER_NAME
from sparklog.node.security.tls.settings import DEFAULT_PROTOCOLS, StoreSettings, TlsSettings
from sparklog.user.dataframe.errors import DataSourceOptionError

TLS_SETTINGS: Final = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_PREFIX: Final = "kafka.ssl."


def tls_settings(settings: Mapping[str, str], session_tls: TlsSettings | None = None) -> TlsSettings:
    """Return the TLS settings by these options, without their prefix `kafka.`; `session_tls` if there are
    none.

    Raises:
        DataSourceOptionError: a value is malformed.
    """
    if session_tls is not None and TLS_SETTINGS.isdisjoint(settings):
        return session_tls

    def text(name: str) -> str | None:
        return settings.get(f"ssl.{name}") or None

    protocols = _list(text("enabled.protocols")) or DEFAULT_PROTOCOLS
    if not set(protocols) <= set(DEFAULT_PROTOCOLS):
        raise DataSourceOptionError(
            f"Option '{_PREFIX}enabled.protocols' is '{text('enabled.protocols')}'; it must be some of "
            f"{', '.join(DEFAULT_PROTOCOLS)}"
        )
    identification = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if identification not in ("https", ""):
        raise DataSourceOptionError(
            f"Option '{_PREFIX}endpoint.identification.algorithm' is '{identification}'; it must be https, "
            "or empty for not checking the server's name"
        )
    return TlsSettings(
        keystore=StoreSettings(
            type=text("keystore.type") or "JKS",
            location=text("keystore.location"),
            password=text("keystore.password"),
            key=text("keystore.key"),
            certificates=text("keystore.certificate.chain"),
            key_password=text("key.password"),
        ),
        truststore=StoreSettings(
            type=text("truststore.type") or "JKS",
            location=text("truststore.location"),
            password=text("truststore.password"),
            certificates=text("truststore.certificates"),
        ),
        enabled_protocols=protocols,
        cipher_suites=_list(text("cipher.suites")),
        endpoint_identification_algorithm=identification,
        prefix=_PREFIX,
    )


def session_tls_settings(access: SessionAccess) -> TlsSettings | None:
    """Return the TLS settings of the application's own sessions, valid for any host of the cluster."""
    if not access.authority_pem:
        return None
    return TlsSettings(
        keystore=StoreSettings(
            type="PEM", key=access.key_pem or None, certificates=access.certificate_pem or None
        ),
        truststore=StoreSettings(type="PEM", certificates=access.authority_pem),
        server_name=CLUSTER_SERVER_NAME,
        prefix=_PREFIX,
    )


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (item.strip() for item in (text or "").split(","))))
