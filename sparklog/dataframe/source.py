"""The data source that Spark knows as `sparklog`.

Options and schemas are checked when Spark makes the reader or writer, on the driver, before a query runs.
"""

from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparklog.dataframe.errors import DataSourceOptionError
from sparklog.dataframe.options import ReadOptions, StreamReadOptions, WriteOptions
from sparklog.dataframe.reader import SparklogReader
from sparklog.dataframe.schemas import record_schema
from sparklog.dataframe.stream_reader import SparklogStreamReader
from sparklog.dataframe.stream_writer import SparklogStreamWriter
from sparklog.dataframe.writer import SparklogWriter

__all__ = ["SparklogDataSource"]


class SparklogDataSource(DataSource):
    """Reads and writes topics of a Kafka cluster, the session's own unless options name another."""

    default_bootstrap_servers: ClassVar[str | None] = None
    """The session's own cluster. Spark makes data sources in processes of their own, which have no session
    to ask; so `register` hands over a subclass that carries the address."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "sparklog"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema of the user's; checks the options on the way.

        Spark does not say here whether the read is a stream, so options that either allows pass.

        Raises:
            DataSourceOptionError: an option is wrong.
        """
        try:
            options = StreamReadOptions.parse(self.options, self.default_bootstrap_servers).read
        except DataSourceOptionError:
            options = self._read_options()
        return record_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads.

        Raises:
            DataSourceOptionError: an option is wrong.
            DataSourceSchemaError: `schema`, if it is the user's, is not some of the columns of records.
        """
        return SparklogReader(self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes.

        Raises:
            DataSourceOptionError: an option is wrong, or the save mode is.
            DataSourceSchemaError: rows of `schema` cannot become records.
        """
        options = WriteOptions.parse(self.options, self.default_bootstrap_servers)
        return SparklogWriter(options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads batch after batch; it raises what is wrong with the options when first called."""
        return SparklogStreamReader(self.options, self.default_bootstrap_servers, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return what writes batch after batch, at least once.

        `overwrite` says that the query's output mode is complete: each batch is then written whole.

        Raises:
            DataSourceOptionError: an option is wrong.
            DataSourceSchemaError: rows of `schema` cannot become records.
        """
        return SparklogStreamWriter(WriteOptions.parse(self.options, self.default_bootstrap_servers), schema)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(self.options, self.default_bootstrap_servers)
