"""Topics as DataFrames: `spark.read.format("sparklog")` and `df.write.format("sparklog")`.

Spark finds the format by itself if sparklog is installed, and `application_cluster` finds the application's
own cluster; `register` gives one session another default. Options, columns and their meaning are those of
Spark's Kafka connector; `options` and `schemas` document the extensions of this source. `planning`,
`resolution` and `reader` read, `routing` and `writer` write.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sparklog.user.dataframe.application_cluster import BOOTSTRAP_SERVERS_CONF, announce, announced_address
from sparklog.user.dataframe.source import SparklogDataSource

__all__ = ["BOOTSTRAP_SERVERS_CONF", "announce", "register"]


def register(spark: SparkSession, default_bootstrap_servers: str | None = None) -> None:
    """Set the default cluster of a session, in place of the application's.

    Reads and writes without `kafka.bootstrap.servers` go to `default_bootstrap_servers`, or, if that is None,
    to the present value of the session's `spark.sparklog.bootstrap.servers`.

    Raises:
        RuntimeError: this is Spark 4.0, which cannot replace a format that it has found by itself, and the
            address is another than the application's.
    """
    address = default_bootstrap_servers or spark.conf.get(BOOTSTRAP_SERVERS_CONF, None)

    class RegisteredDataSource(SparklogDataSource):
        # Spark pickles a class of this function by value, so the address travels with it.
        pass

    RegisteredDataSource.default_bootstrap_servers = address
    try:
        spark.dataSource.register(RegisteredDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if address is None or address == announced_address():
            return  # as the format that is there
        raise RuntimeError(
            f"Spark {spark.version} keeps the format sparklog that it has found by itself: give reads and "
            f"writes of this session the option kafka.bootstrap.servers ({address}) instead"
        ) from error
