"""The address of the cluster that the Spark application runs itself, for every session of the application.

Spark makes Python data sources in worker processes beside the driver. These see no session and no
configuration, but each of them is told, whether it works for a session, for SQL or for a Spark Connect
client, where the application's files are (`SparkFiles`). That directory is the application's alone and goes
when the application ends. So `announce` writes the address there, in the driver, and `announced_address`
reads it in a worker: anew for every query, so that a cluster is also found by sessions that were there
before it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext, SparkFiles

from sparklog.dataframe.writing_threads import writes_from_any_thread
from sparklog.security.session_access import PLAIN_ACCESS, SessionAccess

BOOTSTRAP_SERVERS_CONF: Final = "spark.sparklog.bootstrap.servers"
"""Where a session says what its own cluster's address is."""
_FILE_NAME: Final = "sparklog-bootstrap-servers"
_STOPPED: Final = ""
"""What the file says of a cluster that was stopped."""


class ApplicationAddress(str):
    """The address of the application's own cluster, which is its controller's; empty once it was stopped."""

    __slots__ = ("access",)
    access: SessionAccess
    """By what sessions get in there."""

    def __new__(cls, address: str, access: SessionAccess = PLAIN_ACCESS) -> "ApplicationAddress":
        """Make it of what is announced."""
        made = super().__new__(cls, address)
        made.access = access
        return made


@contextmanager
def announce(
    spark_context: SparkContext, bootstrap_servers: str, access: SessionAccess = PLAIN_ACCESS
) -> Iterator[None]:
    """Say in the driver where queries of this application go unless they name another cluster.

    With `access` they get in there.

    Sessions show it as `spark.sparklog.bootstrap.servers`, for Kafka clients that run beside them. When the
    context ends, queries are told that the cluster was stopped.

    Raises:
        OSError: it cannot be written.
    """
    directory = Path(SparkFiles.getRootDirectory())
    write_address(directory, bootstrap_servers, access)
    # The context's own configuration, not the copy that Python has: it is what sessions begin with.
    spark_context._jsc.sc().conf().set(BOOTSTRAP_SERVERS_CONF, bootstrap_servers)
    try:
        with writes_from_any_thread():
            yield
    finally:
        # Nobody is left to be told if the application has ended before.
        with suppress(OSError, Py4JError, AttributeError):
            write_address(directory, _STOPPED)
            spark_context._jsc.sc().conf().remove(BOOTSTRAP_SERVERS_CONF)


def write_address(directory: Path, bootstrap_servers: str, access: SessionAccess = PLAIN_ACCESS) -> None:
    """Write the address among the application's files, whole for whoever reads it meanwhile.

    Only who runs the application can read the file: there may be a secret in it.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / _FILE_NAME
    unfinished = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        unfinished.unlink()
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{bootstrap_servers}\n{access.to_text()}")
    unfinished.replace(path)


def announced_address() -> ApplicationAddress | None:
    """Return the address of this application's cluster, in a process in which Spark makes data sources.

    None if there never was one.
    """
    directory = Path(SparkFiles.getRootDirectory())
    # The files of a Spark Connect session have a directory of their own, in the application's.
    for place in (directory, directory.parent):
        try:
            address, _, access = (place / _FILE_NAME).read_text().partition("\n")
            return ApplicationAddress(address, SessionAccess.from_text(access))
        except FileNotFoundError:
            continue
    return None
