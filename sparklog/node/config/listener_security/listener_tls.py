"""The TLS context of a listener of SSL or SASL_SSL, by its configuration.

On SASL_SSL certificates do not identify clients, and are required only if `ssl.client.auth` is set for this
listener alone: a value for all listeners is for those of SSL (KIP-684, Kafka's ChannelBuilders).
"""

import logging
from dataclasses import replace
from typing import Final

from sparklog.node.acls.acl import Principal
from sparklog.node.config.broker import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.listener_overrides import ListenerKey
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.tls.cluster_certificates import cluster_certificates
from sparklog.node.security.tls.contexts import server_context
from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.principal import PrincipalMapper
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.node.serving.requests import ANONYMOUS
from sparklog.node.serving.tls.tls_handshakes import ServerTls

_CLIENT_AUTH: Final = "ssl.client.auth"

logger = logging.getLogger(__name__)


def listener_tls_settings(config: BrokerConfig, listener_name: str) -> TlsSettings:
    settings = config.of_listener(listener_name).tls_settings()
    is_set_alone = _CLIENT_AUTH in config.listener_overrides.get(listener_name, {})
    if settings.client_auth == "none" or is_set_alone or not config.security_protocol(listener_name).is_sasl:
        return settings
    logger.warning(
        "%s is for listeners of SSL; listener %s of SASL_SSL requires certificates by %s alone",
        _CLIENT_AUTH,
        listener_name,
        ListenerKey(listener_name, _CLIENT_AUTH),
    )
    return replace(settings, client_auth="none")


def listener_tls(
    config: BrokerConfig, listener_name: str, protocol: SecurityProtocol, secret: ApplicationSecret
) -> ServerTls | None:
    """Return the TLS context of a listener; None if it is not encrypted. Reads files.

    Driver and brokers always get the cluster's internal certificate. It is the only one of the inter-broker
    listener if no other is configured.

    Raises:
        ConfigError: a key is missing, contradicts another, or names an unusable file.
    """
    if not protocol.is_encrypted:
        return None
    settings = listener_tls_settings(config, listener_name)
    certificates = cluster_certificates(secret.tls_seed)
    if listener_name == config.inter_broker_listener and not settings.keystore.is_given:
        if settings.truststore.is_given:
            logger.warning(
                "Listener %s has no ssl.keystore, so only driver, brokers and sessions of this application "
                "can connect: its ssl.truststore is ignored, and no other certificates are trusted",
                listener_name,
            )
        return cluster_listener_tls(protocol, secret, asks_all=settings.client_auth == "required")
    try:
        mapper = PrincipalMapper(settings.principal_mapping_rules)
        context = server_context(settings)
    except TlsConfigError as error:
        raise ConfigError(
            error.key,
            None,
            f"{error.reason} (of listener {listener_name}; for it alone the key is "
            f"{ListenerKey(listener_name, error.key)})",
        ) from error
    certificates.shown_by(context)

    def principal_of(certificate_der: bytes) -> Principal:
        if protocol.is_sasl or certificates.has_issued(certificate_der):
            return ANONYMOUS
        return mapper.principal(certificate_der)

    return ServerTls(context, principal_of)


def cluster_listener_tls(
    protocol: SecurityProtocol, secret: ApplicationSecret, *, asks_all: bool = False
) -> ServerTls | None:
    """Return the TLS context of a listener for driver and brokers only; None if it is not encrypted.

    Its certificate proves membership of the application and names no principal. With `asks_all` every client
    needs a certificate of the application.
    """
    if not protocol.is_encrypted:
        return None
    certificates = cluster_certificates(secret.tls_seed)
    context = certificates.strict_server_context if asks_all else certificates.server_context
    return ServerTls(context, lambda certificate_der: ANONYMOUS)
