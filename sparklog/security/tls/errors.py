"""What is wrong with keys, certificates and settings of TLS, by the name of the key that says it."""

from sparklog.errors import ErrorCode, KafkaError

__all__ = ["TlsConfigError"]


class TlsConfigError(KafkaError):
    """A setting of TLS that contradicts another, or names a file that is of no use; `key` is Kafka's."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(ErrorCode.invalid_config, f"{key}: {reason}")
        self.key = key
        self.reason = reason
