"""The streaming sink, at least once: `writeStream.format("sparklog")`.

A batch that Spark does again, after a failure of the query or of a task, is written again, as with Spark's
Kafka connector.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.dataframe.errors import told_in_one_line
from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.row_writer import RowWriter

__all__ = ["SparklogStreamWriter"]

logger = logging.getLogger(__name__)


class SparklogStreamWriter(DataSourceStreamArrowWriter):
    """Writes rows of `schema`; Spark makes one for every batch, and another to commit it."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check that rows of this schema can be written as the options say.

        Raises:
            DataSourceSchemaError: the schema is not one of records.
        """
        self._rows = RowWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows of a task; return when all are acknowledged.

        Raises:
            InvalidRowError, DeliveryError, KafkaError: as `RowWriter.write` does.
        """
        with told_in_one_line():
            return self._rows.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say how much was written; the records have been there since they were acknowledged."""
        counts = self._rows.written(messages)
        logger.info("Batch %d: wrote %d records to %d partitions", batchId, counts.total(), len(counts))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what stays: records cannot be taken back."""
        logger.warning("Batch %d failed; records that its tasks wrote before stay in the log", batchId)
