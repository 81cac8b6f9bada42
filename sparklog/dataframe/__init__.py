"""Topics as DataFrames: `spark.read.format("sparklog")` and `df.write.format("sparklog")`.

`register` makes the format known to a session. Options, columns and their meaning are those of Spark's
Kafka connector; `options` and `schemas` say where this source goes beyond it. `planning`, `resolution` and
`reader` read, `routing` and `writer` write.
"""

from typing import Final

from pyspark.sql import SparkSession

from sparklog.dataframe.source import SparklogDataSource

__all__ = ["BOOTSTRAP_SERVERS_CONF", "register"]

BOOTSTRAP_SERVERS_CONF: Final = "spark.sparklog.bootstrap.servers"
"""Where a session says what its own cluster's address is."""


def register(spark: SparkSession, default_bootstrap_servers: str | None = None) -> None:
    """Make the format `sparklog` known to a session, in place of an earlier registration.

    Reads and writes without `kafka.bootstrap.servers` go to `default_bootstrap_servers`, or, when that is
    None, to what the session's configuration says at this moment (`spark.sparklog.bootstrap.servers`).
    """
    address = default_bootstrap_servers or spark.conf.get(BOOTSTRAP_SERVERS_CONF, None)

    class RegisteredDataSource(SparklogDataSource):
        # Spark sends a class of this function by value, so the address travels with it.
        pass

    RegisteredDataSource.default_bootstrap_servers = address
    spark.dataSource.register(RegisteredDataSource)
