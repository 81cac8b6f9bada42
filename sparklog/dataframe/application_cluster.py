"""The address of the cluster that the Spark application runs itself, for every session of the application.

Spark makes Python data sources in worker processes beside the driver. These see no session and no
configuration, but each of them is told, whether it works for a session, for SQL or for a Spark Connect
client, where the application's files are (`SparkFiles`). That directory is the application's alone and goes
when the application ends. So `announce` writes the address there, in the driver, and `announced_address`
reads it in a worker: anew for every query, so that a cluster is also found by sessions that were there
before it.
"""

from pathlib import Path
from typing import Final

from pyspark import SparkContext, SparkFiles

__all__ = ["BOOTSTRAP_SERVERS_CONF", "announce", "announced_address", "write_address"]

BOOTSTRAP_SERVERS_CONF: Final = "spark.sparklog.bootstrap.servers"
"""Where a session says what its own cluster's address is."""
_FILE_NAME: Final = "sparklog-bootstrap-servers"


def announce(spark_context: SparkContext, bootstrap_servers: str) -> None:
    """Say in the driver where queries of this application go unless they name another cluster.

    Sessions show it as `spark.sparklog.bootstrap.servers`, for Kafka clients that run beside them.

    Raises:
        OSError: it cannot be written.
    """
    write_address(Path(SparkFiles.getRootDirectory()), bootstrap_servers)
    # The context's own configuration, not the copy that Python has: it is what sessions begin with.
    spark_context._jsc.sc().conf().set(BOOTSTRAP_SERVERS_CONF, bootstrap_servers)


def write_address(directory: Path, bootstrap_servers: str) -> None:
    """Write the address among the application's files, whole for whoever reads it meanwhile.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / _FILE_NAME
    unfinished = path.with_suffix(".new")
    unfinished.write_text(bootstrap_servers)
    unfinished.replace(path)


def announced_address() -> str | None:
    """Return the address of this application's cluster, in a process in which Spark makes data sources."""
    directory = Path(SparkFiles.getRootDirectory())
    # The files of a Spark Connect session have a directory of their own, in the application's.
    for place in (directory, directory.parent):
        try:
            return (place / _FILE_NAME).read_text()
        except FileNotFoundError:
            continue
    return None
