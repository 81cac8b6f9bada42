"""Batch writes: Spark's tasks write the rows, and the driver makes all of them visible, or none.

Under `deliveryGuarantee=atLeastOnce` rows are visible as soon as they are acknowledged, and stay if the job
fails.
"""

import logging
import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.user.dataframe.delivery import AtLeastOnce, ExactlyOnce
from sparklog.user.dataframe.delivery_guarantee import DeliveryGuarantee
from sparklog.user.dataframe.errors import DataSourceOptionError, errors_in_one_line
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.prepared_rows import Batch
from sparklog.user.sink.machine.names import SinkId, SinkKind
from sparklog.user.sink.machine.protocols import Decider

logger = logging.getLogger(__name__)


class SparklogWriter(DataSourceArrowWriter):
    """Writes rows of `schema`, once; it is sent to the tasks, and gets their messages on the driver."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check that rows of this schema can be written with the options.

        Raises:
            DataSourceSchemaError: the schema is not one of records.
        """
        self._delivery = ExactlyOnce(options, schema)
        self._batch = _batch(options)
        self._decider: Decider | None = None

    def prepare(self) -> None:
        """Find the topic, and begin the job, before Spark starts tasks.

        Raises:
            UnknownTopicError, TransactionsUnsupportedError, KafkaError: the write is impossible.
        """
        with errors_in_one_line():
            self._decider = self._delivery.prepare(self._batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows of a task, in a transaction that waits for `commit`.

        Raises:
            DeliveryError, KafkaError: the cluster refused them or did not answer.
        """
        with errors_in_one_line():
            return self._delivery.write(self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible.

        Raises:
            SinkError, InvalidRowError, KafkaError: they are not, or the outcome is unknown.
        """
        with errors_in_one_line():
            counts = self._delivery.commit(self._batch, messages, self._decider)
        logger.info("Wrote %d records to %d partitions", counts.total(), len(counts))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the transactions of the tasks, and those that late tasks still begin.

        Raises:
            SinkError, KafkaError: the outcome is unknown.
        """
        with errors_in_one_line():
            if self._delivery.abort(self._batch, messages):
                logger.warning("The write was decided before it failed, and its records are in the log")


class SparklogAtLeastOnceWriter(AtLeastOnce, DataSourceArrowWriter):
    """Writes the rows of a job; rows written before a failure stay."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of written records.

        Raises:
            InvalidRowError, KafkaError: some rows could not be written.
        """
        counts = self.written(messages)
        logger.info("Wrote %d records to %d partitions", counts.total(), len(counts))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log that records of the failed write stay."""
        logger.warning("The write failed; records that its tasks wrote before stay in the log")


def batch_writer(
    options: WriteOptions, schema: StructType, *, overwrite: bool
) -> SparklogWriter | SparklogAtLeastOnceWriter:
    """Return the writer for the options.

    Raises:
        DataSourceOptionError: the save mode is overwrite.
        DataSourceSchemaError: the schema is not one of records.
    """
    if overwrite:
        raise DataSourceOptionError(
            "Save mode Overwrite is not allowed: records in a log are not replaced; use mode('append')"
        )
    if options.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        return SparklogWriter(options, schema)
    return SparklogAtLeastOnceWriter(options, schema)


def _batch(options: WriteOptions) -> Batch:
    # Each write is a run of its own: others of this process may run at the same time, and each ends only its
    # own transactions.
    run_id = uuid.uuid4().hex
    if (version := options.version) is not None:
        sink = SinkId(SinkKind.APPLICATION, version.application_id, options.topic)
        return Batch(sink, version.version, run_id)
    return Batch(SinkId(SinkKind.JOB, uuid.uuid4().hex), 0, run_id)
