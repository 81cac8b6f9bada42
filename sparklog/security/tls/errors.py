"""What is wrong with keys, certificates and settings of TLS, by the name of the key that says it."""

import ssl

from sparklog.errors import ErrorCode, KafkaError


class TlsConfigError(KafkaError):
    """A setting of TLS that contradicts another, or names a file that is of no use; `key` is Kafka's."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(ErrorCode.invalid_config, f"{key}: {reason}")
        self.key = key
        self.reason = reason


class TlsHandshakeError(KafkaError):
    """The two sides do not trust each other, or have nothing in common: trying again is of no use."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(ErrorCode.network_exception, f"{peer}: TLS: {reason}")

    @property
    def retriable(self) -> bool:
        """Whether trying again may help."""
        return False


def tls_error(peer: str, error: OSError) -> KafkaError:
    """Return what became of a client's connection: its handshake was refused, or it was lost."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsHandshakeError(peer, f"its certificate is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return TlsHandshakeError(peer, (error.reason or str(error)).replace("_", " ").lower())
    return KafkaError(
        ErrorCode.network_exception,
        f"{peer}: lost in the TLS handshake ({error or 'the connection was closed'}); does it speak TLS?",
    )
