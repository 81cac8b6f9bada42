"""The cluster's metrics in Spark's metrics system, for every configured sink.

The controller's process writes them, Java reads: once a second all metrics go over in one call, as text, for
a call for each would take longer than a second. If the Java class cannot be compiled, one line is logged, and
the cluster goes on.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

from pyspark import InheritableThread, SparkContext

from sparklog.driver.monitoring import java
from sparklog.driver.spark.calls import JVM_GONE, answered, is_end_of
from sparklog.driver.spark.janino import CompilationError, NoPlaceError, compiled, instance_of
from sparklog.protocol.types import BrokerId

PROMETHEUS_PATH: Final = "/log/metrics"
"""Path of the page in Spark's UI."""
REFRESH_S: Final = 1.0
STOP_WITHIN_S: Final = 2.0
_CLASS: Final = "sparklog.node.metrics.ClusterMetrics"

logger = logging.getLogger(__name__)


class SparkMetrics:
    def __init__(
        self,
        context: SparkContext,
        write: Callable[[Mapping[BrokerId, int]], tuple[str, str] | None],
        restarts: Callable[[], Mapping[BrokerId, int]],
    ) -> None:
        """Export the results of `write`: lines for Spark's sinks, and those for Prometheus (`MetricsWriter`).

        `restarts` returns the number of each broker's restarts.
        """
        self._context = context
        self._write = write
        self._restarts = restarts
        self._stopping = threading.Event()
        self._thread = InheritableThread(target=self._run, name="sparklog metrics", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Remove the metrics from Spark; waits a moment for that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        try:
            exported = self._attached()
            try:
                self._put_until_stopped(exported)
            finally:
                with contextlib.suppress(*JVM_GONE):
                    exported.detach()
        except CompilationError as error:
            logger.warning("Spark's metrics system lacks the cluster's metrics: %s", error)
        except (*JVM_GONE, NoPlaceError) as error:  # the application ends, or its JVM is gone
            if not self._stopping.is_set():
                logger.info("Spark's metrics system gets no more metrics of the cluster: %s", error)

    def _put_until_stopped(self, exported: Any) -> None:
        """Put the newest metrics once a second; a failure costs one second's.

        Raises:
            Py4JError: the application has ended.
        """
        failed = False
        while not self._stopping.wait(REFRESH_S):
            try:
                answered(lambda: self._put(exported))
            except Exception as error:
                if self._stopping.is_set() or is_end_of(self._context, error):
                    raise
                level = logging.DEBUG if failed else logging.WARNING
                failed = True
                logger.log(level, "Spark's metrics system has outdated cluster metrics", exc_info=error)

    def _attached(self) -> Any:
        source = files(java).joinpath("ClusterMetrics.java").read_text()
        java_context: Any = self._context._jsc
        if java_context is None:
            raise NoPlaceError("the application has ended")
        user_interface = java_context.sc().ui()
        exported = instance_of(
            self._context,
            compiled(self._context, _CLASS, source),
            None if user_interface.isEmpty() else user_interface.get(),
        )
        exported.attach()
        return exported

    def _put(self, exported: Any) -> None:
        written = self._write(self._restarts())
        if written is not None:
            exported.put(*written)
