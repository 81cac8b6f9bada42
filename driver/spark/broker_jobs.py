"""The Spark jobs of a cluster, which `cancelAllJobs` leaves out.

Ctrl-C and `SparkContext.cancelAllJobs` are meant for the user's queries, not for the cluster. Spark has no
"all but these", so every other job is cancelled by its id. That must miss none of the user's jobs and hit
none of the cluster's, however new it is; Spark's status store learns of a job a moment after its submission.
So the newest ids, unknown to the store, count as running; they are read before the store is asked for running
jobs, since it could learn of one in between. The id of each of the cluster's jobs is noted with its
submission.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkContext

REASON: Final = "as part of cancellation of all jobs"
"""Spark's own words."""


def forget_local_properties(spark_context: SparkContext) -> None:
    """Remove local properties of the starting thread, such as tags for cancelling queries.

    They belong to the calling thread, and its jobs inherit them.
    """
    java_virtual_machine: Any = spark_context._jvm
    spark_context._jsc.sc().setLocalProperties(java_virtual_machine.java.util.Properties())


class BrokerJobs:
    """The jobs of one cluster. For any thread."""

    def __init__(self, spark_context: SparkContext) -> None:
        self._java_context: Any = spark_context._jsc.sc()
        # Reentrant, since a signal's handler runs in a thread that may be cancelling already.
        self._submitting = threading.RLock()
        self._job_ids: set[int] = set()

    @contextmanager
    def running(self, submit: Callable[[], Any]) -> Iterator[Any]:
        """Submit a job of the cluster by an asynchronous action and yield its Java future."""
        with self._submitting:
            future = submit()
            job_ids = {int(job_id) for job_id in future.jobIds()}
            self._job_ids |= job_ids
        try:
            yield future
        finally:
            with self._submitting:
                self._job_ids -= job_ids

    def cancel_all_others(self) -> None:
        """Cancel every job but the cluster's; returns before they have ended, as in Spark."""
        tracker = self._java_context.statusTracker()
        with self._submitting:
            job_ids = set()
            newest = int(self._java_context.dagScheduler().numTotalJobs()) - 1
            while newest >= 0 and tracker.getJobInfo(newest).isEmpty():
                job_ids.add(newest)
                newest -= 1
            job_ids |= {int(job_id) for job_id in tracker.getActiveJobIds()}
            for job_id in sorted(job_ids - self._job_ids):
                self._java_context.cancelJob(job_id, REASON)
