"""A rack: one Spark job with one barrier stage, whose tasks are brokers, and the thread that supervises it.

Under dynamic allocation a job has one broker and no barrier (`dynamic_allocation.py`), and a rack of several
brokers has several of them.

A barrier job that loses a task fails as a whole and at once, and Spark does not retry it. So each rack is a
fault domain: its supervisor resubmits the job, with back-off, for as long as the cluster runs, and other
racks are not affected. A task without an exception ended with the whole cluster, or with a refusal that a
retry would not change (`BrokerEnd.refusal`); a task whose broker shut down alone, on a signal or with its
executor, fails and is started again.

A rack for which Spark has too few executors, or for a moment none at its home, waits, and the cluster goes on
without it. While it waits, Spark's UI shows a job that asks for the same slots and does nothing once it has
one.
"""

import contextlib
import logging
import pickle
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from pyspark import InheritableThread

from sparklog.driver.spark.broker_jobs import BrokerJobs, forget_local_properties
from sparklog.driver.spark.broker_tasks import launch_of_last_job, running_tasks
from sparklog.driver.spark.calls import JVM_GONE, answered, is_stopped
from sparklog.driver.spark.placement import Placement, tasks_on
from sparklog.driver.spark.slots import BrokerSlots, waiting_job
from sparklog.hosting import BrokerAssignment, BrokerEnd, run_broker
from sparklog.node.exponential_backoff import ExponentialBackoff

logger = logging.getLogger(__name__)

SLOT_POLL_S: Final = 0.1
"""Half of it is lost, on average, of the time in which a killed executor's broker should be back."""
BACKOFF: Final = ExponentialBackoff(first_ms=100, max_ms=5_000)
"""The first pause is short, since a killed broker should be back soon; a rack that fails again and again must
not keep Spark's scheduler busy.
"""
CALL_SITE: Final = "Kafka broker"
"""The beginning of the names of the brokers' stages, which distinguishes them from the users'."""
_PYTHON_EXCEPTION: Final = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)
_JAVA_CAUSE: Final = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
FAILURES_AT_HOME: Final = 5
"""After so many in a row a rack may run elsewhere: a disk may have failed."""
STEADY_S: Final = 10.0
"""A job that lived this long has served: its end does not belong to a series of failures."""


class Rack:
    def __init__(
        self,
        slots: BrokerSlots,
        assignments: Sequence[BrokerAssignment],
        *,
        name: str,
        placement: Placement,
        jobs: BrokerJobs,
        on_failed: Callable[["Rack", str], None],
        on_refused: Callable[[str], None],
        on_ended: Callable[[], None],
    ) -> None:
        self.name = name
        self.assignments = tuple(assignments)
        self.attempt = 0
        """The number of the job's attempts; it is submitted when there are slots for it."""
        self.last_failure: str | None = None
        self.failures = 0
        """The number of failed attempts in a row."""
        self._waits_for: str | None = None
        self._slots = slots
        self._placement = placement
        self._jobs = jobs
        self._on_failed = on_failed
        self._on_refused = on_refused
        self._on_ended = on_ended
        self._stopping = threading.Event()
        self._cancelled = threading.Event()
        self.job_group = placement.job_group(name)
        self._thread = InheritableThread(target=self._supervise, name=f"sparklog {self.name}", daemon=True)

    @property
    def state(self) -> str:
        if self._waits_for is not None:
            return f"its job waits for {self._waits_for}"
        if self.attempt and self._waits_for_allocation():
            return "its job waits for an executor, which Spark's dynamic allocation has not started"
        if self.last_failure is not None:
            return f"attempt {self.attempt} of its job, after: {self.last_failure}"
        return "its job has been submitted" if self.attempt else "its job has not been submitted"

    @property
    def waits_for_executors(self) -> bool:
        """Whether its job is not submitted yet because there are too few free executors."""
        return self._waits_for is not None

    def _waits_for_allocation(self) -> bool:
        context: Any = self._slots.spark_context._jsc
        with contextlib.suppress(*JVM_GONE):
            return self._slots.allocated and not running_tasks(context.sc(), self.job_group)
        return False

    def start(self) -> None:
        """Submit the job from a thread of its own."""
        self._thread.start()

    def expect_end(self) -> None:
        """Do not resubmit the job after its end."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the supervisor to end; return whether it has, or was never started."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the job, also one that is only now being submitted, unless the application has ended."""
        self._cancelled.set()
        with contextlib.suppress(*JVM_GONE):
            if not is_stopped(self._slots.spark_context):
                self._slots.spark_context.cancelJobGroup(self.job_group)

    def _supervise(self) -> None:
        try:
            self._keep_up()
        finally:
            self._placement.ended(self.name)
            self._on_ended()

    def _keep_up(self) -> None:
        while not self._is_over():
            self.attempt += 1
            served_s = 0.0
            try:
                forget_local_properties(self._slots.spark_context)
                if not self._take_slots():
                    return
                submitted_s = time.monotonic()
                try:
                    ends = self._run_job()
                finally:
                    served_s = self._served_s(submitted_s)
                    # A broker that scaling ends had joined the cluster, however short its time.
                    has_served = self._stopping.is_set() or served_s >= STEADY_S
                    self._placement.give_back(self.name, has_served=has_served)
            except Exception as error:  # of a job, or of a context that goes meanwhile, in many shapes
                if self._is_over():
                    return
                cause = _cause(error)
            else:
                refusals = [end for end in ends if end.refusal is not None]
                for end in refusals:
                    self._on_refused(f"broker {end.node_id} of {self.name}: {end.refusal}")
                if refusals or self._is_over():
                    return
                cause = "its brokers shut down as if the cluster ended"
                if any(end.is_retry for end in ends):
                    cause = "its task was lost, and started again by Spark"
            logger.warning("%s failed, attempt %d: %s", self.name, self.attempt, cause)
            self.last_failure = cause
            self.failures = failures_in_a_row(self.failures, served_s)
            if self.failures >= FAILURES_AT_HOME:
                self._placement.forget_homes(self.name)
            self._on_failed(self, cause)
            self._stopping.wait(BACKOFF.pause_ms(self.failures - 1) / 1000)

    def _served_s(self, submitted_s: float) -> float:
        if not self._slots.allocated:
            return time.monotonic() - submitted_s
        # The job may have waited long for Spark to start an executor.
        launched_s = launch_of_last_job(self._slots.spark_context._jsc.sc(), self.job_group)
        return 0.0 if launched_s is None else time.time() - launched_s

    def _is_over(self) -> bool:
        return self._stopping.is_set() or is_stopped(self._slots.spark_context)

    def _take_slots(self) -> bool:
        """Take the rack's slots when there are enough; return False if the rack has to end first.

        Spark would check a barrier job's slots every 15 s and give it up after a while.
        """
        wanted = len(self.assignments)
        since_s = time.monotonic()

        def taken() -> bool:
            return self._placement.take_slots(self.name, time.monotonic() - since_s)

        if taken():
            return True
        self._waits_for = what = "an executor" if wanted == 1 else f"{wanted} executors"
        logger.warning("%s waits for %s; the cluster goes on with the racks it has", self.name, what)
        description = f"{self._description} waits for {what}; the cluster goes on with the racks it has"
        call_site = f"{CALL_SITE} {self._brokers} ({self.name}) waits for {what}"
        with waiting_job(
            self._slots, self._jobs, f"{self.job_group}-waiting", description, call_site, wanted
        ):
            while not taken():
                if self._stopping.wait(SLOT_POLL_S) or self._is_over():
                    return False
        self._waits_for = None
        logger.warning("%s has %s after %.1f s", self.name, what, time.monotonic() - since_s)
        return True

    @property
    def _brokers(self) -> str:
        return ", ".join(str(assignment.node_id) for assignment in self.assignments)

    @property
    def _description(self) -> str:
        # Spark's own pages make a link of it, and prefix the path as a proxy requires.
        return f'sparklog {self.name}: <a href="/log/">broker {self._brokers}</a>'

    def _run_job(self) -> list[BrokerEnd]:
        context = self._slots.spark_context
        description = self._description
        if self.attempt > 1:
            description += f" (attempt {self.attempt})"
        context.setJobGroup(self.job_group, description, interruptOnCancel=True)
        tasks = tasks_on(self._slots, self._placement.preferred(self.name))
        run = partial(run_broker, self.assignments)
        # Spark refuses barrier stages under dynamic allocation; `FirstLoss` fails the job as one fails.
        brokers_run = (tasks if self._slots.allocated else tasks.barrier()).mapPartitionsWithIndex(run)
        # As RDD.collect() does, but with our name: Spark's would be this line of this file.
        context._jsc.setCallSite(f"{CALL_SITE} {self._brokers} ({self.name})")
        with self._jobs.running(brokers_run._jrdd.collectAsync) as future:
            if self._cancelled.is_set():  # maybe before there was a job that Spark could have found
                future.cancel(True)
            return [end for batch in answered(future.get) for end in pickle.loads(bytes(batch))]


def failures_in_a_row(failures_before: int, lived_s: float) -> int:
    """Return the length of a series of failures with that of a job that lived for `lived_s`.

    >>> failures_in_a_row(3, lived_s=1.0), failures_in_a_row(3, lived_s=60.0)
    (4, 1)
    """
    return 1 if lived_s >= STEADY_S else failures_before + 1


def _cause(error: Exception) -> str:
    # The message holds the worker's traceback between Java's; its last exception is the cause. Without one,
    # because an executor was lost, it is Java's last cause.
    text = str(error)
    for pattern in (_PYTHON_EXCEPTION, _JAVA_CAUSE):
        if causes := pattern.findall(text):
            return str(causes[-1])
    return text.partition("\n")[0]
