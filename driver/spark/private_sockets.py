"""Whether Spark and its Python talk by loopback ports, or by socket files that only their user opens.

Every user of a host reaches its loopback ports. Most of PySpark's only refuse a stranger, but that of a
barrier task ends its executor (`open_network.check_barrier_tasks`). Spark 4.1 has socket files instead, if a
session is made with `spark.python.unix.domain.socket.enabled`; afterwards it cannot be changed.

This is imported before Spark is started, and imports nothing else of a cluster.
"""

from typing import Final

from pyspark import SparkConf, SparkContext

__all__ = ["have_private_sockets", "private_sockets_remedy"]

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
_DIRECTORY: Final = "spark.python.unix.domain.socket.dir"
_FIRST_VERSION: Final = (4, 1)


def have_private_sockets(settings: SparkConf) -> None:
    """Have a session that is made with `settings` use socket files, unless they say otherwise.

    Spark 4.0 ignores it. On YARN the files lie in /tmp: a container's own temporary directory has a longer
    path than the kernel allows them.
    """
    settings.setIfMissing(_ENABLED, "true")
    if str(settings.get("spark.master", "")).startswith("yarn"):
        settings.setIfMissing(_DIRECTORY, "/tmp")


def private_sockets_remedy(spark_context: SparkContext) -> str | None:
    """Return what gives an application socket files in place of ports; None if it has them."""
    version = tuple(int(part) for part in spark_context.version.split(".")[:2])
    if version < _FIRST_VERSION:
        return f"Spark {spark_context.version} has no remedy: use Spark 4.1 or later"
    if str(spark_context.getConf().get(_ENABLED, "false")).lower() == "true":
        return None
    return f"Make the session with {_ENABLED}=true"
