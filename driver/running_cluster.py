"""The one cluster of a Spark application, and what a second start makes of it.

A notebook's cell is run twice, and two libraries in it start "the" cluster: whoever asks for what is running
gets it, from whichever session or thread. Whoever asks for something else is told what differs. A second
cluster would take slots that the application counts on, and the format `sparklog` can mean one cluster only.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from sparklog.config import BrokerConfig
from sparklog.config.broker import BROKER_KEYS
from sparklog.config.listener_overrides import listener_key
from sparklog.driver.cluster import SparkCluster
from sparklog.hosting import StartError

logger = logging.getLogger(__name__)

_NOT_COMPARED: Final = frozenset({"log.dir", "log.dirs", "sparklog.start.timeout.ms"})
"""Directories are compared by their paths; how long the start may take is no part of what runs then."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a cluster is asked to be; two are alike however their configuration was written."""

    racks: int
    brokers_per_rack: int
    config: BrokerConfig

    def differences(self, running: "Shape") -> list[str]:
        """Return each thing that `running` has otherwise, with both values."""
        mine, theirs = self._values(), running._values()
        return [
            f"{name} is {_as_text(theirs.get(name))}, not {_as_text(mine.get(name))}"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        ]

    def _values(self) -> dict[str, object]:
        directories = tuple(str(Path(directory).absolute()) for directory in self.config.data_directories)
        return {
            "racks": self.racks,
            "brokers_per_rack": self.brokers_per_rack,
            "log.dirs": directories,
            **{name: self.config.value(name) for name in BROKER_KEYS if name not in _NOT_COMPARED},
            **self._listener_values(),
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

        Whoever comes while another thread starts one waits for what comes of it. What a start has left that
        was broken off, and broken off again while it cleared up, is stopped first.

        Raises:
            StartError: a cluster of another shape runs.
            Exception: what `make`, or the start, raises.
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
                    logger.warning("The cluster that ran here has failed: %s", cluster.failure)
                cluster.stop()  # or wait until another thread has
            self._shape = None
            self._context, self._cluster = context, make()
            self._cluster.start()
            self._shape = shape
            return self._cluster


def _check(cluster: SparkCluster, running: Shape, shape: Shape) -> None:
    if differences := shape.differences(running):
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
