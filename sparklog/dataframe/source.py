"""The data source that Spark knows as `sparklog`.

Options and schemas are checked when Spark makes the reader or writer, on the driver, before a query runs.

Spark imports this module in every application whose Python has it, to learn the format's name
(`pyspark_sparklog`). So it imports next to nothing: what reads and what writes is imported when somebody
does.
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
    from sparklog.dataframe.options import WriteOptions

_OPTION_OF_TABLE: Final = "option."
"""What Spark puts before the names of a table's own options when it gives them to a source."""
_NO_OPTIONS_OF_TABLES: Final = (
    "Spark drops the OPTIONS of CREATE TABLE when a source is in Python: no query of the table would know "
    "of them. Leave them out (CREATE TABLE log USING sparklog) and give them with each query, as in SELECT * "
    "FROM log WITH (subscribe = 'events'); or CREATE TEMPORARY VIEW events USING sparklog OPTIONS (subscribe "
    "'events')"
)


class SparklogDataSource(DataSource):
    """Reads and writes topics of a Kafka cluster, the application's own unless options name another."""

    default_bootstrap_servers: ClassVar[str | None] = None
    """A session's own choice, in the subclass that `register` makes; None is what the application runs."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "sparklog"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema of the user's; checks the options on the way.

        Spark does not say here whether the read is a stream, so options that either allows pass. CREATE TABLE
        asks as well, with the table's properties among the options.

        Raises:
            DataSourceOptionError: an option is wrong, or a table is given options.
        """
        from sparklog.dataframe.errors import DataSourceOptionError, told_in_one_line
        from sparklog.dataframe.options import read_options_of_either_kind
        from sparklog.dataframe.schemas import record_schema

        if "provider" in self.options:
            if any(name.lower().startswith(_OPTION_OF_TABLE) for name in self.options):
                with told_in_one_line():
                    raise DataSourceOptionError(_NO_OPTIONS_OF_TABLES)
            return record_schema(include_headers=False)
        with told_in_one_line():
            options = read_options_of_either_kind(self.options, self._default())
        return record_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads.

        Raises:
            DataSourceOptionError: an option is wrong.
            DataSourceSchemaError: `schema`, if it is the user's, is not some of the columns of records.
        """
        from sparklog.dataframe.errors import told_in_one_line
        from sparklog.dataframe.options import ReadOptions
        from sparklog.dataframe.reader import SparklogReader

        with told_in_one_line():
            return SparklogReader(ReadOptions.parse(self.options, self._default()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes, once the topic is found.

        Raises:
            DataSourceOptionError: an option is wrong, or the save mode is.
            DataSourceSchemaError: rows of `schema` cannot become records.
            KafkaError: the topic isn't there, or the cluster can't be written to as asked.
        """
        from sparklog.dataframe.errors import told_in_one_line
        from sparklog.dataframe.writer import batch_writer

        with told_in_one_line():
            writer = batch_writer(self._write_options(), schema, overwrite=overwrite)
        writer.prepare()
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads batch after batch; its first call raises what is wrong with options or schema."""
        from sparklog.dataframe.stream_reader import stream_reader

        return stream_reader(self.options, self._default(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return what writes batch after batch, exactly once unless options say otherwise.

        `overwrite` says that the query's output mode is complete: each batch is then written whole.

        Raises:
            DataSourceOptionError: an option is wrong.
            DataSourceSchemaError: rows of `schema` cannot become records.
            KafkaError: the topic isn't there, or the cluster can't be written to as asked.
        """
        from sparklog.dataframe.errors import told_in_one_line
        from sparklog.dataframe.stream_writer import stream_writer

        with told_in_one_line():
            writer = stream_writer(self._write_options(), schema)
        writer.prepare()
        return writer

    def _write_options(self) -> "WriteOptions":
        from sparklog.dataframe.options import WriteOptions

        return WriteOptions.parse(self.options, self._default())

    def _default(self) -> str | None:
        """Return where a query goes that names no cluster."""
        from sparklog.dataframe.application_cluster import announced_address

        announced = announced_address()
        own = self.default_bootstrap_servers
        # With the application's own address comes by what sessions get in there.
        return announced if own is None or own == announced else own
