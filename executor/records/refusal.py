"""Records that make a leader refuse their batch, reported one by one (KIP-467).

A producer that knows them sends the others again. Kafka says INVALID_TIMESTAMP of the batch if the timestamp
of any is wrong, INVALID_RECORD otherwise.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sparklog.protocol.errors import ErrorCode, KafkaError

MOST_RECORD_ERRORS: Final = 2_000
"""How many records of a batch are named: an answer with all would be larger than the request. A producer that
sends the rest again hears of the next ones."""


class RecordError(NamedTuple):
    batch_index: int
    """Which one of its batch, the first being 0."""
    error_code: ErrorCode
    message: str


class RecordsRefusedError(KafkaError):
    """Records are readable, but some are not allowed in the topic."""

    def __init__(self, record_errors: Sequence[RecordError], record_count: int) -> None:
        of_time = [each for each in record_errors if each.error_code is ErrorCode.invalid_timestamp]
        first = of_time[0] if of_time else record_errors[0]
        several = f"{len(record_errors)} of {record_count} records are refused, such as"
        message = f"{several if len(record_errors) > 1 else 'this is refused:'} record {first.batch_index}: "
        message += first.message
        super().__init__(first.error_code, message)
        self.record_errors = tuple(record_errors)
