"""The streaming sink: `writeStream.format("sparklog")`, exactly once unless the options differ.

Spark creates a writer for every batch, in a process of the driver's from which it is sent to the tasks, and
another one to commit it. The latter only gets the batch's number; query and run are in the tasks' messages.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.spark_versions import DataSourceStreamArrowWriter
from sparklog.user.dataframe.delivery import AtLeastOnce, ExactlyOnce, reported_batch
from sparklog.user.dataframe.delivery_guarantee import DeliveryGuarantee
from sparklog.user.dataframe.errors import DataSourceOptionError, errors_in_one_line
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.prepared_rows import Batch
from sparklog.user.sink.machine.names import SinkId, SinkKind

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of a query's jobs."""


class SparklogStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a batch in transactions, and ends them with it."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check that rows of this schema can be written with the options.

        Raises:
            DataSourceSchemaError: the schema is not one of records.
        """
        self._delivery = ExactlyOnce(options, schema)

    def prepare(self) -> None:
        """Find the topic before Spark starts tasks.

        Raises:
            UnknownTopicError, TransactionsUnsupportedError, KafkaError: nothing can be written.
        """
        with errors_in_one_line():
            self._delivery.prepare(None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows of a task, in a transaction that waits for `commit`.

        Raises:
            DeliveryError, KafkaError: the cluster refused them or did not answer.
        """
        with errors_in_one_line():
            return self._delivery.write(_batch_of_this_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch's rows visible, unless they are.

        Raises:
            SinkError, InvalidRowError, KafkaError: they are not, or the outcome is unknown.
        """
        batch = reported_batch(messages)
        if batch is None:  # the batch has no partitions, and Spark has asked no task of ours
            logger.info("Batch %d: nothing to write", batchId)
            return
        assert batch.batch_id == batchId, "every task sends its batch"
        with errors_in_one_line():
            counts = self._delivery.commit(batch, messages)
        logger.info("Batch %d: wrote %d records to %d partitions", batchId, counts.total(), len(counts))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """End the tasks' transactions.

        Raises:
            SinkError, KafkaError: the outcome is unknown.
        """
        batch = reported_batch(messages)
        if batch is None:
            logger.warning(
                "Batch %d failed before any task was done; transactions of killed tasks are aborted when the "
                "query is started again",
                batchId,
            )
            return
        with errors_in_one_line():
            if self._delivery.abort(batch, messages):
                logger.warning(
                    "Batch %d was decided before it failed, and its records are in the log", batchId
                )


class SparklogAtLeastOnceStreamWriter(AtLeastOnce, DataSourceStreamArrowWriter):
    """Writes the rows of a batch; a repeated batch is written again."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the number of written records.

        Raises:
            InvalidRowError, KafkaError: some rows could not be written.
        """
        counts = self.written(messages)
        logger.info("Batch %d: wrote %d records to %d partitions", batchId, counts.total(), len(counts))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log that records of the failed batch stay."""
        logger.warning("Batch %d failed; records that its tasks wrote before stay in the log", batchId)


def stream_writer(
    options: WriteOptions, schema: StructType
) -> SparklogStreamWriter | SparklogAtLeastOnceStreamWriter:
    """Return the writer for the options.

    Raises:
        DataSourceOptionError: they are those of a batch.
        DataSourceSchemaError: the schema is not one of records.
    """
    if options.version is not None:
        raise DataSourceOptionError(
            "Options 'txnAppId' and 'txnVersion' are for df.write, as in foreachBatch: a streaming query is "
            "identified by its checkpoint; leave them out"
        )
    if options.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        return SparklogStreamWriter(options, schema)
    return SparklogAtLeastOnceStreamWriter(options, schema)


def _batch_of_this_task() -> Batch:
    task = TaskContext.get()
    assert task is not None, "Spark calls this in a task"
    query_id, batch_id, run_id = (task.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, _RUN_ID))
    assert query_id is not None and batch_id is not None and run_id is not None, (
        "Spark sets these in a query's tasks"
    )
    return Batch(SinkId(SinkKind.QUERY, query_id), int(batch_id), run_id)
