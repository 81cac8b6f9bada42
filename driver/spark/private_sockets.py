"""The transport between Spark and its Python: loopback ports, or socket files that only their user can open.

Every user of a host can connect to its loopback ports. Most of PySpark's only refuse other users, but that of
a barrier task ends its executor (`open_network.check_barrier_tasks`). Spark 4.1 has socket files instead, if
a session is created with `spark.python.unix.domain.socket.enabled`; it cannot be changed afterwards.

Imported before Spark is started; imports nothing else of a cluster.
"""

from typing import Final

from pyspark import SparkConf, SparkContext

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
_DIRECTORY: Final = "spark.python.unix.domain.socket.dir"
_SHORT_DIRECTORY: Final = "/tmp"
_LONGEST_DIRECTORY: Final = 60
"""So that a file `.<UUID>.sock` in it has the 103 characters that every system allows a socket's path."""
_FIRST_VERSION: Final = (4, 1)


def have_private_sockets(settings: SparkConf, temporary_directory: str) -> None:
    """Enable socket files in the settings of a new session, unless they are set already.

    The files lie in the JVMs' temporary directories, the driver's being `temporary_directory`, or in /tmp if
    its path is too long, as that of YARN's containers is. Spark 4.0 ignores these settings.
    """
    settings.setIfMissing(_ENABLED, "true")
    is_yarn = str(settings.get("spark.master", "")).startswith("yarn")
    if is_yarn or len(temporary_directory) > _LONGEST_DIRECTORY:
        settings.setIfMissing(_DIRECTORY, _SHORT_DIRECTORY)


def private_sockets_remedy(spark_context: SparkContext) -> str | None:
    """Return the setting that gives an application socket files; None if it has them."""
    version = tuple(int(part) for part in spark_context.version.split(".")[:2])
    if version < _FIRST_VERSION:
        return f"Spark {spark_context.version} has no remedy: use Spark 4.1 or later"
    if str(spark_context.getConf().get(_ENABLED, "false")).lower() == "true":
        return None
    return f"Make the session with {_ENABLED}=true"
