"""The data source that Spark knows as `sparklog`.

Options and schemas are checked when Spark makes the reader or writer, on the driver, before a query runs.
"""

from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from sparklog.dataframe.options import ReadOptions, WriteOptions
from sparklog.dataframe.reader import SparklogReader
from sparklog.dataframe.schemas import record_schema
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

        Raises:
            DataSourceOptionError: an option is wrong.
        """
        return record_schema(include_headers=self._read_options().include_headers)

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

    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(self.options, self.default_bootstrap_servers)
