"""Errors with a Kafka error code.

Every error that a client, a disk or an option can cause is raised as a `KafkaError` (or a subclass that fixes
the code) whose message says what was wrong, where, and what to do. Request handlers put `error_code` and the
message into their response; no other place translates exceptions to codes.
"""

from typing import Final

from kio.schema.errors import ErrorCode as ErrorCode

TIMESTAMPS_ARE_BOUNDED: Final = (
    "which message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic allow now: write "
    "milliseconds since 1970, or raise these"
)
"""The end of an INVALID_TIMESTAMP message."""


class KafkaError(Exception):
    """A condition with a Kafka error code.

    >>> error = KafkaError(ErrorCode.message_too_large, "batch of 2 MiB exceeds max.message.bytes")
    >>> error.error_code.name, error.retriable
    ('message_too_large', False)
    """

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message

    @property
    def retriable(self) -> bool:
        """Whether Kafka's clients retry the request."""
        return self.error_code.retriable

    def __str__(self) -> str:
        return f"{self.error_code.name.upper()}: {self.message}"


def kafka_error(error: KafkaError | OSError) -> KafkaError:
    """Return the error of a response; an OSError of a disk becomes KAFKA_STORAGE_ERROR.

    >>> str(kafka_error(OSError("no space left")))
    'KAFKA_STORAGE_ERROR: no space left'
    """
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.kafka_storage_error, str(error))
