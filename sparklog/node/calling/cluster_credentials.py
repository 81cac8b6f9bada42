"""Login and TLS with which driver and brokers connect to each other."""

from typing import Final, NamedTuple

from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.tls.cluster_certificates import CLUSTER_SERVER_NAME, cluster_certificates
from sparklog.node.serving.tls.tls_stream import ClientTls


class ClusterCredentials(NamedTuple):
    """Login and TLS of a connection within the cluster."""

    login: Login | None = None
    """None to listeners without SASL."""
    tls: ClientTls | None = None
    """None: the listener speaks plain text."""

    @classmethod
    def to(cls, protocol: SecurityProtocol, secret: ApplicationSecret) -> "ClusterCredentials":
        """Return the credentials for listeners of a protocol. With TLS that takes milliseconds."""
        if not protocol.is_encrypted:
            return cls(secret.login)
        return cls(
            secret.login, ClientTls(cluster_certificates(secret.tls_seed).client_context, CLUSTER_SERVER_NAME)
        )


NO_CREDENTIALS: Final = ClusterCredentials()
"""A connection without login and in plain text."""
