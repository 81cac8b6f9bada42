"""Messages of tasks to the driver about their rows, and about failures that a retry cannot cure.

Such a failure, of a row that is not a record or a topic that does not exist, is sent as a message instead of
raised, and raised on the driver when the job commits: so it fails the job at once instead of one attempt of
four.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from pyspark.sql.datasource import WriterCommitMessage

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TimestampMs, TopicPartition
from sparklog.user.client.errors import UnknownTopicError
from sparklog.user.dataframe.errors import InvalidRowError
from sparklog.user.sink.machine.decisions import WriterTransaction
from sparklog.user.sink.machine.errors import SinkError
from sparklog.user.sink.machine.names import SinkId
from sparklog.user.sink.machine.steps import DeciderStamp

_INCURABLE: Final = frozenset(
    {
        ErrorCode.cluster_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_transaction_timeout,
        ErrorCode.message_too_large,
        ErrorCode.policy_violation,
        ErrorCode.topic_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.unsupported_version,
    }
)


class WrittenRecords(WriterCommitMessage):
    """Acknowledged rows of a task, as `row_writer.WrittenRows`."""

    def __init__(
        self,
        counts: Counter[TopicPartition],
        oldest_timestamps_ms: Mapping[str, TimestampMs],
        topic_ids: Mapping[str, UUID | None],
    ) -> None:
        self.counts = counts
        self.oldest_timestamps_ms = oldest_timestamps_ms
        self.topic_ids = topic_ids


class Batch:
    def __init__(self, sink: SinkId, batch_id: int, run_id: str) -> None:
        self.sink = sink
        self.batch_id = batch_id
        self.run_id = run_id
        self.began_with: DeciderStamp | None = None
        """Decider of a job, once it has begun."""


class PreparedRows(WrittenRecords):
    """Rows of a transaction that waits for a decision."""

    def __init__(
        self,
        batch: Batch,
        *,
        counts: Counter[TopicPartition],
        oldest_timestamps_ms: Mapping[str, TimestampMs],
        topic_ids: Mapping[str, UUID | None],
        transaction: WriterTransaction | None = None,
        waits_for_ever: bool = True,
        unwritten_rows: int = 0,
    ) -> None:
        super().__init__(counts, oldest_timestamps_ms, topic_ids)
        self.batch = batch
        self.transaction = transaction
        """None: the task had no rows, or found the batch decided."""
        self.waits_for_ever = waits_for_ever
        self.unwritten_rows = unwritten_rows
        """Rows of a batch that the task found decided."""

    @property
    def rows(self) -> int:
        return self.counts.total() + self.unwritten_rows


class RefusedRows(WriterCommitMessage):
    def __init__(self, batch: Batch | None, error_code: ErrorCode | None, text: str, of_sink: bool) -> None:
        self.batch = batch
        self._error_code = error_code
        self._text = text
        self._of_sink = of_sink

    @property
    def error(self) -> Exception:
        if self._error_code is not None:
            return KafkaError(self._error_code, self._text)
        return SinkError(self._text) if self._of_sink else InvalidRowError(self._text)


def refusal(batch: Batch | None, error: Exception) -> RefusedRows | None:
    """Return the message for an error that another attempt would repeat; None for other errors."""
    if isinstance(error, InvalidRowError | SinkError):
        return RefusedRows(batch, None, str(error), isinstance(error, SinkError))
    if isinstance(error, KafkaError) and (
        isinstance(error, UnknownTopicError) or error.error_code in _INCURABLE
    ):
        return RefusedRows(batch, error.error_code, error.message, False)
    return None


def raise_refusals(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raise the error of a task whose rows can't be written.

    Raises:
        InvalidRowError, KafkaError, SinkError: a message has one.
    """
    for message in messages:
        if isinstance(message, RefusedRows):
            raise message.error


def records_of(messages: Iterable[WriterCommitMessage | None]) -> list[WrittenRecords]:
    """Return the messages about records; a failed task has none."""
    return [message for message in messages if isinstance(message, WrittenRecords)]
