"""The data source that Spark knows as `sparklog`.

Options and schemas are checked when Spark creates the reader or writer, on the driver, before a query runs.

Spark imports this module in every application that has it installed, to learn the format's name
(`pyspark_sparklog`). So it imports very little: readers and writers are imported on first use.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from sparklog.user.dataframe.options import WriteOptions

_OPTION_OF_TABLE: Final = "option."
"""Prefix of a table's own options when Spark passes them to a source."""
_NO_OPTIONS_OF_TABLES: Final = (
    "Spark drops the OPTIONS of CREATE TABLE when a source is in Python: queries of the table would not get "
    "them. Leave them out (CREATE TABLE log USING sparklog) and give them with each query, as in SELECT * "
    "FROM log WITH (subscribe = 'events'); or CREATE TEMPORARY VIEW events USING sparklog OPTIONS (subscribe "
    "'events')"
)


class SparklogDataSource(DataSource):
    """Reads and writes topics of a Kafka cluster: the application's own unless options name another one."""

    default_bootstrap_servers: ClassVar[str | None] = None
    """A session's default, in the subclass that `register` creates; None for the application's cluster."""

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        """Return the columns of a read without a user's schema; checks the options as well.

        Spark does not say here whether the read is a stream, so options that either permits pass. CREATE
        TABLE calls this too, with the table's properties among the options.

        Raises:
            DataSourceOptionError: an option is wrong, or a table has options.
        """
        from sparklog.user.dataframe.errors import DataSourceOptionError, errors_in_one_line
        from sparklog.user.dataframe.options import read_options_of_either_kind
        from sparklog.user.dataframe.schemas import record_schema

        if "provider" in self.options:
            if any(name.lower().startswith(_OPTION_OF_TABLE) for name in self.options):
                with errors_in_one_line():
                    raise DataSourceOptionError(_NO_OPTIONS_OF_TABLES)
            return record_schema(include_headers=False)
        with errors_in_one_line():
            options = read_options_of_either_kind(self.options, self._default())
        return record_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch.

        Raises:
            DataSourceOptionError: an option is wrong.
            DataSourceSchemaError: `schema`, if it is the user's, has other columns than records.
        """
        from sparklog.user.dataframe.errors import errors_in_one_line
        from sparklog.user.dataframe.options import ReadOptions
        from sparklog.user.dataframe.reader import SparklogReader

        with errors_in_one_line():
            return SparklogReader(ReadOptions.parse(self.options, self._default()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch, once the topic is found.

        Raises:
            DataSourceOptionError: an option or the save mode is wrong.
            DataSourceSchemaError: rows of `schema` cannot become records.
            KafkaError: the topic does not exist, or the cluster can't be written to.
        """
        from sparklog.user.dataframe.errors import errors_in_one_line
        from sparklog.user.dataframe.writer import batch_writer

        with errors_in_one_line():
            writer = batch_writer(self._write_options(), schema, overwrite=overwrite)
        writer.prepare()
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream; its first call raises errors of options or schema."""
        from sparklog.user.dataframe.stream_reader import stream_reader

        return stream_reader(self.options, self._default(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream; it writes exactly once unless the options choose otherwise.

        `overwrite` means that the query's output mode is complete: each batch is then written whole.

        Raises:
            DataSourceOptionError: an option is wrong.
            DataSourceSchemaError: rows of `schema` cannot become records.
            KafkaError: the topic does not exist, or the cluster can't be written to.
        """
        from sparklog.user.dataframe.errors import errors_in_one_line
        from sparklog.user.dataframe.stream_writer import stream_writer

        with errors_in_one_line():
            writer = stream_writer(self._write_options(), schema)
        writer.prepare()
        return writer

    def _write_options(self) -> "WriteOptions":
        from sparklog.user.dataframe.options import WriteOptions

        return WriteOptions.parse(self.options, self._default())

    def _default(self) -> str | None:
        """Return the address for queries that name no cluster."""
        from sparklog.user.dataframe.application_cluster import announced_address

        announced = announced_address()
        own = self.default_bootstrap_servers
        # The application's own address comes with the credentials of its sessions.
        return announced if own is None or own == announced else own
