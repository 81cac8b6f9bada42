"""The seam between an application and the two sides of its cluster, which never import each other.

`start` runs in the driver and belongs to `driver`; `run_broker` runs in an executor and belongs to
`executor`. Both are found as entry points of the installed distribution, so this module, which the
two share, imports neither. What the driver tells a broker's task is a `BrokerAssignment`; what the
task hands back when it ends is a `BrokerEnd`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from sparklog.security.inside import ApplicationSecret
from sparklog.types import BrokerId

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ENTRY_POINT_GROUP = "sparklog.sides"


class StartError(Exception):
    """The cluster can't be started here; the message says what is missing and the remedy."""


class TooFewTaskSlotsError(StartError):
    """Spark could not run all brokers at once; a barrier job would wait for minutes and fail."""


class DynamicAllocationError(StartError):
    """Spark may take executors away while dynamic allocation is on, and refuses barrier stages."""


class NoWritableDirectoryError(StartError):
    """No directory to keep logs in, or one that another user of the machine has made."""


class LoopbackAddressError(StartError):
    """Executors are on other hosts than the driver, and an address that they need is a loopback one."""


class OpenNetworkError(StartError):
    """Whoever reaches this application from other hosts could use it without saying who he is."""


class BrokerRefusedError(StartError):
    """A broker ended for a reason that trying again would not change."""


@dataclass(frozen=True, slots=True)
class BrokerAssignment:
    """What a task needs to know to become a broker; of which cluster, the metadata quorum tells it."""

    node_id: BrokerId
    rack: str
    controller_host: str
    controller_port: int
    secret: ApplicationSecret
    """What driver and brokers know each other by."""
    configuration: Mapping[str, str] = field(repr=False)
    """Kafka's keys and values, checked by the driver; there may be passwords among them."""
    directories: tuple[str, ...]
    """The broker's own directories, one in each of `log.dirs`."""
    temporary: bool
    """Whether the directories are removed when the broker leaves with the whole cluster."""
    log_level: int
    """What the broker logs to the task's stderr, as a level of Python's logging."""


@dataclass(frozen=True, slots=True)
class BrokerEnd:
    """How a broker's task ended without an exception."""

    node_id: BrokerId
    refusal: str | None
    """Why no other attempt can succeed; `None` if the whole cluster leaves."""


class Cluster(Protocol):
    """A running cluster; also a context manager that stops it."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for every Kafka client, wherever Spark puts the brokers."""

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id, 22 characters."""

    @property
    def failure(self) -> BaseException | None:
        """Why the controller ended by itself, if it did; only `stop` is left then."""

    def stop(self) -> None:
        """Let every broker flush and leave, then end the controller. Idempotent."""

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

    An application has one: called again with the same arguments, whatever session or thread it is from, it
    returns that one. Every start has an end: the `with` block of one that found the cluster running leaves it
    running, and `Cluster.stop` stops it for all.

    Args:
        spark: The session; its own tasks keep slots beside the brokers'. Or the context of an application
            that only serves: Spark SQL, which takes seconds to load, then stays out of it.
        racks: Failure domains, each one Spark barrier job. Replicas of a partition go to different racks, and
            racks to different hosts where there are executors on several.
        brokers_per_rack: Brokers that start and fail together.
        log_directories: Where brokers keep their logs, on the machines that they run on; each broker
            has a `broker-<id>` of its own in each. Without them logs are temporary: they are removed
            when the cluster stops. Those that are named are kept, and a later start over them goes on with
            the cluster that was there; it waits until a majority of the metadata log's voters has come. Each
            broker goes to the host that has its directories, if Spark has an executor free there, and begins
            empty elsewhere if not; where all begin empty a new cluster is formed (docs/deploy.md).
        config: Kafka's configuration keys, as a mapping or as the path of a properties file.

    Raises:
        StartError: Something is missing, or another cluster runs; raised before a job is submitted where that
            can be known.
        ConfigError: (sparklog.config) An unknown key or a malformed value.
        PropertiesError: (sparklog.config) The file can't be read, or is no properties file.
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
    """Be the broker that a job's task of that partition is assigned to be, until it leaves.

    Assignments are part of what the task runs and not rows that it is given: those PySpark writes to a file
    first, and secrets are among them. Needs the process's main thread, where signals arrive.
    """
    return map(_side("executor"), assignments[partition : partition + 1])


def _side(name: str) -> Any:
    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if not found:
        raise StartError(
            f"the {name} side of sparklog is not installed here: install the sparklog wheel into the Python "
            "of the driver and of the executors (`make package` builds an archive for executors)"
        )
    return next(iter(found)).load()
