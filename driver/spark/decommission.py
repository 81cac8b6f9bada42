"""Notices that Spark decommissions an executor while brokers still run on it.

Spark decommissions an executor before it removes it: its host shuts down, a spot instance is reclaimed, an
operator shrinks the application. The tasks on it get no notice, but the driver's task scheduler knows at
once. So the executors of brokers are checked a few times a second; a decommissioned one is reported once for
each attempt of its rack, and followed by a controlled shutdown and another attempt, which Spark does not put
on that executor again.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark import InheritableThread, SparkContext

from sparklog.driver.spark.broker_tasks import running_tasks
from sparklog.driver.spark.calls import JVM_GONE, is_connection_lost
from sparklog.driver.spark.rack import Rack

POLL_S: Final = 0.25

logger = logging.getLogger(__name__)


class DecommissionWatch:
    """A thread that checks the executors of all racks, from `start` to `stop`."""

    def __init__(
        self,
        spark_context: SparkContext,
        racks: Sequence[Rack],
        on_decommissioned: Callable[[Rack, str], None],
    ) -> None:
        """`on_decommissioned` gets the rack that loses an executor, and its id. `racks` may change."""
        # Kept, since PySpark forgets it when the context is stopped, which may happen during a check.
        self._context: Any = spark_context._jsc.sc()
        self._racks = racks
        self._on_decommissioned = on_decommissioned
        self._stopping = threading.Event()
        self._executors: dict[Rack, tuple[int, frozenset[str]]] = {}
        """By rack: the attempt, and the executors of its tasks once all have started."""
        self._reported: dict[Rack, int] = {}
        """The attempt for which a rack was last reported."""
        self._thread = InheritableThread(target=self._run, name="sparklog decommission", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; returns at once."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            try:
                for rack in tuple(self._racks):
                    self._look_at(rack)
            except JVM_GONE as error:
                if is_connection_lost(error):
                    continue
                # The context is being stopped, or the JVM has ended.
                if not self._stopping.is_set():
                    logger.info("Executors are no longer watched for decommission: %s", error)
                return

    def _look_at(self, rack: Rack) -> None:
        attempt = rack.attempt
        if self._reported.get(rack) == attempt:
            return
        seen_attempt, executors = self._executors.get(rack, (0, frozenset[str]()))
        if seen_attempt != attempt:
            executors = frozenset(task.executor_id for task in running_tasks(self._context, rack.job_group))
            if len(executors) < len(rack.assignments):
                return
            self._executors[rack] = (attempt, executors)
        scheduler = self._context.taskScheduler()
        if scheduler is None:  # the context has just been stopped
            return
        for executor in executors:
            if scheduler.getExecutorDecommissionState(executor).isDefined():
                self._reported[rack] = attempt
                self._on_decommissioned(rack, executor)
                return
