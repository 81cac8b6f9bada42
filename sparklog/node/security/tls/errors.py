"""Errors of keys, certificates and TLS settings, by the name of the key at fault."""

import ssl

from sparklog.protocol.errors import ErrorCode, KafkaError


class TlsConfigError(KafkaError):
    """A TLS setting that contradicts another, or names an unusable file; `key` is Kafka's."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(ErrorCode.invalid_config, f"{key}: {reason}")
        self.key = key
        self.reason = reason


class TlsHandshakeError(KafkaError):
    """A handshake that failed for lack of trust or of a common protocol: a retry is of no use."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(ErrorCode.network_exception, f"{peer}: TLS: {reason}")

    @property
    def retriable(self) -> bool:
        return False


def tls_error(peer: str, error: OSError) -> KafkaError:
    """Return the error of a client's connection: a refused handshake, or a lost connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsHandshakeError(peer, f"its certificate is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return TlsHandshakeError(peer, (error.reason or str(error)).replace("_", " ").lower())
    return KafkaError(
        ErrorCode.network_exception,
        f"{peer}: lost in the TLS handshake ({error or 'the connection was closed'}); does it speak TLS?",
    )
