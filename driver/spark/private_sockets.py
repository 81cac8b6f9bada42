"""Whether Spark and its Python talk by loopback ports, or by socket files that only their user opens.

Every user of a host reaches its loopback ports. Most of PySpark's only refuse a stranger, but that of a
barrier task ends its executor (`open_network.check_barrier_tasks`). Spark 4.1 has socket files instead, if a
session is made with `spark.python.unix.domain.socket.enabled`; afterwards it cannot be changed.

This is imported before Spark is started, and imports nothing else of a cluster.
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
    """Have a session that is made with `settings` use socket files, unless they say otherwise.

    They lie in the JVMs' temporary directories, the driver's being `temporary_directory`, or in /tmp if its
    path is too long, as that of YARN's containers is. Spark 4.0 ignores all of that.
    """
    settings.setIfMissing(_ENABLED, "true")
    is_yarn = str(settings.get("spark.master", "")).startswith("yarn")
    if is_yarn or len(temporary_directory) > _LONGEST_DIRECTORY:
        settings.setIfMissing(_DIRECTORY, _SHORT_DIRECTORY)


def private_sockets_remedy(spark_context: SparkContext) -> str | None:
    """Return what gives an application socket files in place of ports; None if it has them."""
    version = tuple(int(part) for part in spark_context.version.split(".")[:2])
    if version < _FIRST_VERSION:
        return f"Spark {spark_context.version} has no remedy: use Spark 4.1 or later"
    if str(spark_context.getConf().get(_ENABLED, "false")).lower() == "true":
        return None
    return f"Make the session with {_ENABLED}=true"
