"""A listener of TLS on loopback, and clients of it."""

import ssl
from collections.abc import Mapping
from typing import Any

from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.serving.tls.tls_handshakes import ServerTls
from tests.certificates import Authority, Certified

SECRET = ApplicationSecret.new()


def server_tls(
    certified: Certified, protocol: SecurityProtocol = SecurityProtocol.SSL, **keys: Any
) -> ServerTls:
    """Return what a listener shows that has this certificate, and further keys of Kafka's (`_` for `.`)."""
    given: Mapping[str, str] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": f"CLIENTS:{protocol.name}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": certified.key_pem,
        "ssl.keystore.certificate.chain": certified.certificate_pem,
        "ssl.truststore.type": "PEM",
        **{name.replace("_", "."): value for name, value in keys.items()},
    }
    tls = listener_tls(BrokerConfig.from_mapping(given), "CLIENTS", protocol, SECRET)
    assert tls is not None
    return tls


def client_of(authority: Authority) -> ssl.SSLContext:
    """Return the context of a client that trusts nobody else."""
    return ssl.create_default_context(cadata=authority.pem)
