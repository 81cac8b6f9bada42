"""The Spark jobs that belong to a cluster, so that they can be left out when a user cancels all jobs.

Whoever presses Ctrl-C, or calls `SparkContext.cancelAllJobs`, means the queries that he waits for, not the
cluster beside them. Spark knows no "all but these", so every other job is cancelled by its id. That must miss
none of the user's and hit none of the cluster's, however new it is; Spark's status store hears of a job a
moment after it was submitted. So the newest ids, which the store has not heard of, count as running; they are
looked for before the store is asked what runs, or it would hear of one in between. No job of the cluster's is
submitted without its id being noted.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkContext

REASON: Final = "as part of cancellation of all jobs"
"""Spark's own words."""


def forget_local_properties(spark_context: SparkContext) -> None:
    """Have none from whoever started the cluster: tags by which he cancels queries may be among them.

    They are the calling thread's, and jobs that it submits have them.
    """
    java_virtual_machine: Any = spark_context._jvm
    spark_context._jsc.sc().setLocalProperties(java_virtual_machine.java.util.Properties())


class BrokerJobs:
    """The jobs of one cluster. May be used from any thread."""

    def __init__(self, spark_context: SparkContext) -> None:
        self._java_context: Any = spark_context._jsc.sc()
        # Reentrant, since a signal's handler runs in a thread that may be cancelling already.
        self._submitting = threading.RLock()
        self._job_ids: set[int] = set()

    @contextmanager
    def running(self, submit: Callable[[], Any]) -> Iterator[Any]:
        """Submit a job by an asynchronous action and yield its Java future; the job is the cluster's."""
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
        """Have Spark cancel every job but the cluster's; returns before they have ended, as Spark does."""
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
