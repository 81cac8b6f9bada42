"""The seam between an application and the two sides of its cluster, which never import each other.

`start` runs in the driver and belongs to `driver`; `run_broker` runs in an executor and belongs to
`executor`. Both are entry points of the installed distribution, so this shared module imports neither. The
driver gives a broker's task a `BrokerAssignment`; the task returns a `BrokerEnd`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.types import BrokerId

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ENTRY_POINT_GROUP = "sparklog.sides"


class StartError(Exception):
    """The cluster can't be started here; the message says why and gives the remedy."""


class TooFewTaskSlotsError(StartError):
    """Spark could not run all brokers at once; a barrier job would wait for minutes and fail."""


class DynamicAllocationError(StartError):
    """A setting of dynamic allocation keeps brokers from running, or would run them twice."""


class NoWritableDirectoryError(StartError):
    """The directory for logs is not writable or belongs to another user of the machine."""


class LoopbackAddressError(StartError):
    """Executors are on other hosts than the driver, and an advertised address is a loopback one."""


class RemoteStoreError(StartError):
    """The object store of sparklog.remote.uri can't be used; no broker was started."""


class OpenNetworkError(StartError):
    """Clients on other hosts could use the application without authentication."""


class ScaleError(Exception):
    """The cluster keeps its size, or has not reached the new one in time; the message says why."""


class BrokerRefusedError(StartError):
    """A broker ended for a reason that a retry would not change."""


@dataclass(frozen=True, slots=True)
class BrokerAssignment:
    """The parameters of a broker's task; the broker learns the cluster id from the metadata quorum."""

    node_id: BrokerId
    rack: str
    controller_host: str
    controller_port: int
    secret: ApplicationSecret
    """Authenticates driver and brokers to each other."""
    configuration: Mapping[str, str] = field(repr=False)
    """Kafka's keys and values, checked by the driver; may contain passwords."""
    directories: tuple[str, ...]
    """The broker's own directories, one in each of `log.dirs`."""
    temporary: bool
    """Whether the directories are removed when the broker leaves with the whole cluster."""
    log_level: int
    """The level of the broker's log on the task's stderr, as in Python's logging."""
    ids_per_rack: int | None = None
    """The brokers of each rack whose ids are counted rack by rack, noted in new directories."""
    owner_epoch: int | None = None
    """Of the application's ownership of the object store; None without a tier."""


@dataclass(frozen=True, slots=True)
class BrokerEnd:
    """The end of a broker's task without an exception."""

    node_id: BrokerId
    refusal: str | None
    """The reason why no other attempt can succeed; None if the whole cluster shuts down."""
    is_retry: bool = False
    """Whether Spark itself had started a lost task again, which ended before it was a broker."""


class Cluster(Protocol):
    """A running cluster; also a context manager that stops it."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for every Kafka client, independent of the brokers' hosts."""

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id, 22 characters."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the controller, if any; then only `stop` is useful."""

    def scale(
        self, *, racks: int | None = None, brokers_per_rack: int | None = None, timeout_s: float | None = None
    ) -> None:
        """Give the running cluster another number of racks, or of brokers of each rack.

        A larger cluster: the new brokers' jobs are started. It returns when they are unfenced; new topics use
        them. A smaller cluster: the last racks, and the brokers with the highest ids of each rack, get no new
        replicas. Theirs move to the other brokers; then they give up their votes, end, and are unregistered.
        Their directories are left as they are.

        The log shows the progress. The size is kept in the metadata log: a start over the same directories
        with fewer racks goes on with those of the last `scale`. A call with the former numbers, from another
        thread or after an interrupt, gives a change up.

        Args:
            racks: The new number of racks; unchanged if None.
            brokers_per_rack: The new number of brokers of each rack; unchanged if None.
            timeout_s: How long to wait; the change goes on after that. None waits until it is done.

        Raises:
            ScaleError: The cluster would have fewer brokers than a topic has replicas, or the time is over.
            TooFewTaskSlotsError: Spark has no room for the new brokers.
        """

    def stop(self) -> None:
        """Shut down every broker after a flush, then the controller. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def start(
    spark: SparkSession | SparkContext,
    *,
    racks: int = 3,
    brokers_per_rack: int = 1,
    log_directories: str | Path | list[str | Path] | None = None,
    config: Mapping[str, object] | str | Path | None = None,
) -> Cluster:
    """Turn the application of `spark` into a Kafka cluster; return when every broker is unfenced.

    An application has one cluster: a second call with the same arguments, from any session or thread, returns
    the same one. The end of a `with` block stops the cluster only if its call started it; `Cluster.stop`
    stops it for all.

    Args:
        spark: The session; its own tasks keep slots beside the brokers'. Or the context of an application
            that only serves: Spark SQL, which takes seconds to load, is then not loaded.
        racks: Failure domains, each one Spark barrier job. Replicas of a partition go to different racks, and
            racks to different hosts if executors run on several.
        brokers_per_rack: Brokers that start and fail together; under dynamic allocation each is a job.
        log_directories: Directories for logs, on the machines of the brokers; each broker has a
            `broker-<id>` of its own in each. None means temporary logs, which are removed when the cluster
            stops. Named directories are kept, and a later start over them continues the cluster in them; it
            waits until a majority of the metadata log's voters has come. Each broker runs on the host with
            its directories, if Spark has a free executor there, and otherwise starts empty on another; if
            all start empty a new cluster is formed (docs/deploy.md).
        config: Kafka's configuration keys, as a mapping or as the path of a properties file.

    Raises:
        StartError: A requirement is not met, or another cluster runs; raised before a job is submitted where
            possible.
        ConfigError: (sparklog.node.config) An unknown key or a malformed value.
        PropertiesError: (sparklog.node.config) The file can't be read, or is malformed.
    """
    from sparklog.spark_versions import why_too_old  # of PySpark, which client programs may lack

    # On an older PySpark the imports of the driver's side would fail.
    if (too_old := why_too_old()) is not None:
        raise StartError(too_old)
    cluster: Cluster = _side("driver")(
        spark,
        racks=racks,
        brokers_per_rack=brokers_per_rack,
        log_directories=log_directories,
        config=config,
    )
    return cluster


def run_broker(
    assignments: Sequence[BrokerAssignment], partition: int, _: Iterable[object]
) -> Iterator[BrokerEnd]:
    """Run the broker assigned to this partition of the job, until it shuts down.

    Assignments are part of the task's closure, not its input rows: PySpark writes rows to a file first, and
    assignments contain secrets. Needs the process's main thread, which receives signals.
    """
    return map(_side("executor"), assignments[partition : partition + 1])


def hold_executor(_: Iterable[object]) -> Iterator[object]:
    """Keep the executor of this task until the job is cancelled, so that Spark starts others beside it."""
    threading.Event().wait()
    return iter(())


def _side(name: str) -> Any:
    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if not found:
        raise StartError(
            f"the {name} side of sparklog is not installed here: install the sparklog wheel into the Python "
            "of the driver and of the executors (`make package` builds an archive for executors)"
        )
    return next(iter(found)).load()
