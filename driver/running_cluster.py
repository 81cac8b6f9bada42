"""The one cluster of a Spark application, and the effect of a second start.

A notebook's cell is run twice, and two libraries in it start "the" cluster: a start with the arguments of the
running cluster returns it, from any session or thread. A start with other arguments fails and names the
differences. A second cluster would take slots that the application counts on, and the format `sparklog` can
mean one cluster only.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from sparklog.driver.cluster import SparkCluster
from sparklog.hosting import StartError
from sparklog.node.config import BrokerConfig
from sparklog.node.config.broker import BOUND_BY_RACKS, BROKER_KEYS
from sparklog.node.config.keys.table_keys import CATALOG_PREFIX
from sparklog.node.config.listener_overrides import listener_key
from sparklog.node.config.password import Password
from sparklog.node.metadata.cluster_size import ClusterSize
from sparklog.node.remote_log.uri import OPTION_PREFIX

logger = logging.getLogger(__name__)

_NOT_COMPARED: Final = frozenset({"log.dir", "log.dirs", "sparklog.start.timeout.ms"})
"""Directories are compared by their paths; the start's time-out does not matter afterwards."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The requested properties of a cluster; equal for equal values, however written."""

    racks: int
    brokers_per_rack: int
    config: BrokerConfig

    def scaled(self, size: ClusterSize) -> "Shape":
        return replace(self, racks=size.racks, brokers_per_rack=size.brokers_per_rack)

    def differences(self, running: "Shape", ignored: Collection[str] = ()) -> list[str]:
        """Return the differences to `running`, with both values; but for `ignored` keys."""
        mine, theirs = self._values(), running._values()
        return [
            f"{name} is {_as_text(theirs.get(name))}, not {_as_text(mine.get(name))}"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name) and name not in ignored
        ]

    def _values(self) -> dict[str, object]:
        directories = tuple(str(Path(directory).absolute()) for directory in self.config.data_directories)
        return {
            "racks": self.racks,
            "brokers_per_rack": self.brokers_per_rack,
            "log.dirs": directories,
            **{name: self.config.value(name) for name in BROKER_KEYS if name not in _NOT_COMPARED},
            **self._listener_values(),
            **{f"{OPTION_PREFIX}{name}": Password(text) for name, text in self.config.remote_options.items()},
            **{f"{CATALOG_PREFIX}{name}": Password(text) for name, text in self.config.table_catalog.items()},
        }

    def _listener_values(self) -> dict[str, object]:
        found = ((listener_key(name), text) for name, text in self.config.raw.items())
        return {str(key): BROKER_KEYS[key.name].parse(text) for key, text in found if key is not None}


class RunningCluster:
    """The cluster of the application that this process drives, once one was started. For any thread."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._context: SparkContext | None = None
        self._shape: Shape | None = None
        """None until the cluster has started."""
        self._cluster: SparkCluster | None = None

    def get_or_start(
        self, context: SparkContext, shape: Shape, make: Callable[[], SparkCluster]
    ) -> SparkCluster:
        """Return the context's cluster if it has this shape; if there is none, make one and start it.

        A call while another thread starts one waits for the result. The remains of a start that was
        interrupted twice are stopped first.

        Raises:
            StartError: a cluster of another shape runs.
            Exception: an error of `make`, or of the start.
        """
        with self._starting:
            cluster = self._cluster
            if cluster is not None:
                running, usable = self._shape, not cluster.is_stopped and cluster.failure is None
                if running is not None and self._context is context and usable:
                    _check(cluster, running, shape)
                    cluster.share()
                    return cluster
                if cluster.failure is not None:
                    logger.warning("The previous cluster of this application has failed: %s", cluster.failure)
                cluster.stop()  # or wait until another thread has
            self._shape = None
            self._context, self._cluster = context, make()
            self._cluster.start()
            self._shape = shape
            return self._cluster


def _check(cluster: SparkCluster, started: Shape, shape: Shape) -> None:
    running = started.scaled(cluster.size)
    # A cluster that is scaled keeps the default replication factors of its start.
    ignored = () if running == started else BOUND_BY_RACKS
    if differences := shape.differences(running, ignored):
        raise StartError(
            f"this application runs another cluster already, at {cluster.bootstrap_servers}: "
            f"{'; '.join(differences)}. Stop that one first, or ask for the same to get it"
        )


def _as_text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else str(value)
