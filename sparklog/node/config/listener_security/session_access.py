"""The access of the application's own sessions to the driver's first listener, by the configuration."""

from sparklog.node.config.broker import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import listener_tls_settings
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.session_access import SessionAccess
from sparklog.node.security.tls.cluster_certificates import cluster_certificates


def session_access(config: BrokerConfig, secret: ApplicationSecret) -> SessionAccess:
    """Return the credentials that the listener requires, no others. May generate certificates."""
    listener_name = config.controller_quorum_bootstrap_servers[0].listener_name
    protocol = config.controller_protocol
    authority_pem = key_pem = certificate_pem = ""
    if protocol.is_encrypted:
        certificates = cluster_certificates(secret.tls_seed)
        authority_pem = certificates.authority_pem
        if listener_tls_settings(config, listener_name).client_auth == "required":
            key_pem, certificate_pem = certificates.session_pem()
    return SessionAccess(
        protocol=protocol.name,
        authority_pem=authority_pem,
        key_pem=key_pem,
        certificate_pem=certificate_pem,
        secret=secret.of_sessions if protocol.is_sasl or certificate_pem else "",
    )
