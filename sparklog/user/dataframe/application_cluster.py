"""The address of the cluster that the Spark application runs itself, for every session of the application.

Spark creates Python data sources in worker processes beside the driver. These see no session and no
configuration, but each of them knows the directory of the application's files (`SparkFiles`), whether it
works for a session, for SQL or for a Spark Connect client. That directory belongs to the application alone
and is deleted when it ends. So `announce` writes the address there, in the driver, and `announced_address`
reads it in a worker, for every query, so that sessions created before the cluster find it, too.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext, SparkFiles

from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.node.security.session_access import PLAIN_ACCESS, SessionAccess
from sparklog.user.dataframe.writing_threads import writes_from_any_thread

BOOTSTRAP_SERVERS_CONF: Final = "spark.sparklog.bootstrap.servers"
"""Session configuration with the address of the session's cluster."""
_FILE_NAME: Final = "sparklog-bootstrap-servers"
_STOPPED: Final = ""
"""Content of the file after the cluster was stopped."""


class ApplicationAddress(str):
    """The address of the application's own cluster, that of its controller; empty once it is stopped."""

    __slots__ = ("access", "store")
    access: SessionAccess
    store: StoreLocation | None
    """The object store of its tier."""

    def __new__(
        cls, address: str, access: SessionAccess = PLAIN_ACCESS, store: StoreLocation | None = None
    ) -> "ApplicationAddress":
        made = super().__new__(cls, address)
        made.access = access
        made.store = store
        return made


@contextmanager
def announce(
    spark_context: SparkContext,
    bootstrap_servers: str,
    access: SessionAccess = PLAIN_ACCESS,
    store: StoreLocation | None = None,
) -> Iterator[None]:
    """Announce the cluster to which queries of this application go unless they name another one.

    `access` has their credentials, `store` the place of its tier with the credentials there. Sessions show
    the address as `spark.sparklog.bootstrap.servers`, for Kafka clients beside them. At the end of the
    context the cluster is announced as stopped.

    Raises:
        OSError: it cannot be written.
    """
    directory = Path(SparkFiles.getRootDirectory())
    write_address(directory, bootstrap_servers, access, store)
    # The context's own configuration, not Python's copy of it: sessions begin with the former.
    spark_context._jsc.sc().conf().set(BOOTSTRAP_SERVERS_CONF, bootstrap_servers)
    try:
        with writes_from_any_thread():
            yield
    finally:
        # If the application has ended before, no query is left to read it.
        with suppress(OSError, Py4JError, AttributeError):
            write_address(directory, _STOPPED)
            spark_context._jsc.sc().conf().remove(BOOTSTRAP_SERVERS_CONF)


def write_address(
    directory: Path,
    bootstrap_servers: str,
    access: SessionAccess = PLAIN_ACCESS,
    store: StoreLocation | None = None,
) -> None:
    """Write the address among the application's files, atomically.

    Only the application's user can read the file: it may contain secrets.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / _FILE_NAME
    unfinished = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        unfinished.unlink()
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join((bootstrap_servers, access.to_text(), "" if store is None else store.to_text())))
    unfinished.replace(path)


def announced_address() -> ApplicationAddress | None:
    """Return the address of this application's cluster, in a process in which Spark creates data sources.

    None if there never was one.
    """
    directory = Path(SparkFiles.getRootDirectory())
    # A Spark Connect session has a directory of its own for files, inside the application's.
    for place in (directory, directory.parent):
        try:
            address, access, store = (place / _FILE_NAME).read_text().split("\n")
            return ApplicationAddress(
                address,
                SessionAccess.from_text(access),
                StoreLocation.from_text(store) if store else None,
            )
        except FileNotFoundError:
            continue
    return None
