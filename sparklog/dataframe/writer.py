"""Writing: Spark's tasks write the rows, and the driver says how many there were.

A task that Spark runs again writes its rows again, as with Spark's Kafka connector: what a failed attempt
wrote stays, for a log cannot take back.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.dataframe.errors import DataSourceOptionError, told_in_one_line
from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.row_writer import RowWriter

__all__ = ["SparklogWriter"]

logger = logging.getLogger(__name__)


class SparklogWriter(DataSourceArrowWriter):
    """Writes rows of `schema`, once."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check that rows of this schema can be written as the options say.

        Raises:
            DataSourceOptionError: the save mode is overwrite.
            DataSourceSchemaError: the schema is not one of records.
        """
        if overwrite:
            raise DataSourceOptionError(
                "Save mode Overwrite is not allowed: records in a log are not replaced; use mode('append')"
            )
        self._rows = RowWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows of a task; return when all are acknowledged.

        Raises:
            InvalidRowError, DeliveryError, KafkaError: as `RowWriter.write` does.
        """
        with told_in_one_line():
            return self._rows.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say how much was written; the records have been there since they were acknowledged."""
        counts = self._rows.written(messages)
        logger.info("Wrote %d records to %d partitions", counts.total(), len(counts))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what stays: records cannot be taken back."""
        logger.warning("The write failed; records that its tasks wrote before stay in the log")
