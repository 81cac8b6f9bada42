"""Topics as DataFrames: `spark.read.format("sparklog")` and `df.write.format("sparklog")`.

Spark finds the format by itself where sparklog is installed, and the application's own cluster is found by
`application_cluster`; `register` gives one session another default. Options, columns and their meaning are
those of Spark's Kafka connector; `options` and `schemas` say where this source goes beyond it. `planning`,
`resolution` and `reader` read, `routing` and `writer` write.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sparklog.dataframe.application_cluster import BOOTSTRAP_SERVERS_CONF, announce
from sparklog.dataframe.source import SparklogDataSource

__all__ = ["BOOTSTRAP_SERVERS_CONF", "announce", "register"]


def register(spark: SparkSession, default_bootstrap_servers: str | None = None) -> None:
    """Give a session a cluster of its own choice, in place of the application's.

    Reads and writes without `kafka.bootstrap.servers` go to `default_bootstrap_servers`, or, when that is
    None, to what the session's configuration says at this moment (`spark.sparklog.bootstrap.servers`).

    Raises:
        RuntimeError: this is Spark 4.0, which replaces no format that it has found by itself.
    """
    address = default_bootstrap_servers or spark.conf.get(BOOTSTRAP_SERVERS_CONF, None)

    class RegisteredDataSource(SparklogDataSource):
        # Spark sends a class of this function by value, so the address travels with it.
        pass

    RegisteredDataSource.default_bootstrap_servers = address
    try:
        spark.dataSource.register(RegisteredDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise RuntimeError(
            f"Spark {spark.version} keeps the format sparklog that it has found by itself: give reads and "
            f"writes of this session the option kafka.bootstrap.servers ({address}) instead"
        ) from error
