"""Brokers beside Spark's dynamic allocation: its settings, and the executors that brokers have of their own.

Spark runs no barrier stage under dynamic allocation, so each broker is an ordinary one-task job on an
executor of the brokers' resource profile. An executor with a running task is never idle, and Spark starts
executors of a profile only while tasks of it wait. Tasks that end at once would all run on the first
executor, and Spark would ask for no others: so before the brokers start, one task each holds an executor
until there are enough. Their hosts are known then, to the checks and the search for directories.

Spark would try an ordinary task again, and the supervisor of the rack would learn nothing: `FirstLoss.java`
fails the job with its first lost task instead, as a barrier job fails. A task that Spark started again before
that ends at once (`executor/process/broker_task.py`).

Source: Spark's ExecutorAllocationManager, TaskSetManager, ResourceProfileManager.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from sparklog.driver.spark.broker_jobs import forget_local_properties
from sparklog.driver.spark.broker_tasks import has_running_tasks, running_tasks
from sparklog.driver.spark.calls import JVM_GONE, answered
from sparklog.driver.spark.interpreter import wrong_interpreter
from sparklog.driver.spark.janino import CompilationError, compiled, instance_of
from sparklog.driver.spark.placement import tasks_on
from sparklog.driver.spark.slots import BrokerSlots, executor_memory, is_allocated_dynamically
from sparklog.hosting import DynamicAllocationError, StartError, TooFewTaskSlotsError, hold_executor

logger = logging.getLogger(__name__)

CALL_SITE: Final = "Kafka brokers' executors"
POLL_S: Final = 0.1
KILL_TIMEOUT_S: Final = 10.0
"""Time for Spark to kill the tasks that held executors."""
_MAX_EXECUTORS: Final = "spark.dynamicAllocation.maxExecutors"
_RATIO: Final = "spark.dynamicAllocation.executorAllocationRatio"
_SPECULATION: Final = "spark.speculation"
_SPECULATION_THRESHOLD: Final = "spark.speculation.task.duration.threshold"


def check_dynamic_allocation(spark_context: SparkContext, broker_count: int) -> None:
    """Check that the settings of dynamic allocation let every broker run, and run once.

    Raises:
        DynamicAllocationError: They do not; the message names the key and a value.
    """
    if not is_allocated_dynamically(spark_context):
        return
    settings = spark_context.getConf()
    max_executors = settings.get(_MAX_EXECUTORS)
    if max_executors is not None and int(max_executors) < broker_count:
        raise DynamicAllocationError(
            f"{_MAX_EXECUTORS} is {max_executors}: Spark applies it to the brokers' executors on their own, "
            f"and {broker_count} brokers need one each; set it to {broker_count} or more, or start fewer "
            "racks"
        )
    ratio = float(settings.get(_RATIO) or 1)
    if math.ceil(broker_count * ratio) < broker_count:
        raise DynamicAllocationError(
            f"{_RATIO} is {ratio:g}: Spark would start {math.ceil(broker_count * ratio)} executors for "
            f"{broker_count} brokers, which need one each; set it to 1"
        )
    is_speculating = (settings.get(_SPECULATION) or "false").lower() == "true"
    threshold = settings.get(_SPECULATION_THRESHOLD)
    if is_speculating and threshold is not None and not threshold.strip().startswith("0"):
        raise DynamicAllocationError(
            f"{_SPECULATION} is true with {_SPECULATION_THRESHOLD}={threshold}: after that time Spark would "
            f"start a second copy of each broker; remove {_SPECULATION_THRESHOLD} (without it Spark does not "
            "speculate on stages of one task)"
        )


@contextlib.contextmanager
def held_executors(slots: BrokerSlots, job_group: str, broker_count: int, timeout_s: float) -> Iterator[None]:
    """Obtain an executor of its own for each broker, and keep all of them during the block.

    Raises:
        TooFewTaskSlotsError: There were fewer after `timeout_s`.
        StartError: Their Python does not run.
    """
    hold = _Hold(slots, job_group, broker_count)
    # A thread of its own, so that the group of its job does not apply to the caller's jobs.
    thread = InheritableThread(target=hold.run, name="sparklog executors", daemon=True)
    thread.start()
    try:
        hold.wait(timeout_s)
        if hold.failure is not None:
            text = str(hold.failure)
            raise StartError(
                wrong_interpreter(slots.spark_context, text)
                or f"the executors of the brokers run no tasks: {text.partition(chr(10))[0]} (the executors' "
                "stderr, linked from the Spark UI, says more)"
            )
        if hold.executors < broker_count:
            size = f"{slots.cores_per_broker} core(s) and {executor_memory(slots.spark_context)}"
            raise TooFewTaskSlotsError(
                f"{broker_count} brokers need {broker_count} executors of their own, with {size} each, "
                f"beside those of your jobs, and Spark's dynamic allocation brought {hold.executors} within "
                f"{timeout_s:.0f} s: let the cluster manager have room for them (spark.cores.max, queues, "
                "workers), or start fewer racks (docs/deploy.md)"
            )
        yield
    finally:
        hold.release()
        thread.join()


class _Hold:
    """A job whose tasks each hold an executor of the brokers' profile, until it is released."""

    def __init__(self, slots: BrokerSlots, job_group: str, broker_count: int) -> None:
        self.executors = 0
        """The number of executors that a task holds."""
        self.failure: Exception | None = None
        self._slots = slots
        self._job_group = job_group
        self._broker_count = broker_count
        self._decided = threading.Event()
        self._released = threading.Event()

    def run(self) -> None:
        try:
            self._hold()
        except (Py4JError, OSError) as error:
            if not self._released.is_set():
                self.failure = error
        finally:
            self._decided.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until all executors are held, or cannot be."""
        self._decided.wait(timeout_s)

    def release(self) -> None:
        self._released.set()

    def _hold(self) -> None:
        context = self._slots.spark_context
        forget_local_properties(context)
        holding = tasks_on(self._slots, [[]] * self._broker_count).mapPartitions(hold_executor)
        description = f"sparklog has Spark start executors for {self._broker_count} broker(s)"
        context.setJobGroup(self._job_group, description, interruptOnCancel=True)
        java_context: Any = context._jsc
        java_context.setCallSite(CALL_SITE)
        future = holding._jrdd.collectAsync()
        try:
            while not self._released.wait(POLL_S):
                if answered(lambda: bool(future.isDone())):  # before its time: it has failed
                    answered(future.get)
                tasks = running_tasks(java_context.sc(), self._job_group)
                self.executors = len({task.executor_id for task in tasks})
                if self.executors == self._broker_count:
                    self._decided.set()
                    self._released.wait()
        finally:
            future.cancel(True)
            self._wait_for_free_executors()

    def _wait_for_free_executors(self) -> None:
        """Wait until no task holds an executor: Spark would start other executors for the next tasks."""
        java_context: Any = self._slots.spark_context._jsc.sc()
        deadline_s = time.monotonic() + KILL_TIMEOUT_S
        while has_running_tasks(java_context, self._job_group):
            if time.monotonic() > deadline_s:
                logger.warning("Spark did not end tasks of job group %s in time", self._job_group)
                return
            time.sleep(POLL_S)


class FirstLoss:
    """Fails each of the watched jobs with its first lost task, from `start` to `stop`."""

    def __init__(self, spark_context: SparkContext) -> None:
        self._context = spark_context
        # Kept, since PySpark forgets it when the context is stopped.
        self._java_context: Any = spark_context._jsc.sc()
        java_virtual_machine: Any = spark_context._jvm
        # Of Java's own class: py4j would call the methods of the first class of a name, and each cluster of
        # an application compiles its own.
        self._job_groups: Any = java_virtual_machine.java.util.concurrent.ConcurrentHashMap.newKeySet()
        self._listener: Any = None

    def start(self) -> None:
        """Listen to Spark's tasks.

        Raises:
            StartError: This Spark cannot compile the listener.
        """
        source = files("sparklog.driver.spark.java").joinpath("FirstLoss.java").read_text()
        try:
            java_class = compiled(self._context, "sparklog.spark.FirstLoss", source)
        except CompilationError as error:
            raise StartError(
                f"brokers cannot run under spark.dynamicAllocation.enabled here: {error}"
            ) from None
        self._listener = instance_of(self._context, java_class, self._java_context, self._job_groups)
        self._java_context.addSparkListener(self._listener)

    def watch(self, job_group: str) -> None:
        answered(lambda: self._job_groups.add(job_group))

    def stop(self) -> None:
        if self._listener is None:
            return
        try:
            self._java_context.removeSparkListener(self._listener)
        except JVM_GONE:  # and the listener with it
            return
