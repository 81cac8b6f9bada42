"""Applications in local mode with a Spark that is made up: it notes what it is asked, and ends jobs as told.

The cluster that is started in one is the real one, up to its tasks.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import SparkContext

from sparklog.hosting import BrokerAssignment, BrokerEnd
from tests.unit.driver.spark.java_virtual_machine import context_of

REFUSAL = "the disk is another cluster's"


class Application:
    """One of 8 slots, in which nothing else runs."""

    def __init__(self, job: Callable[[int], Sequence[BrokerEnd]]) -> None:
        """`job` says how the n-th job ends."""
        self.context: Any = context_of(None)
        self.context.__class__ = SparkContext  # as which a start knows it
        self.context.master = "local[8]"
        scala_context = self.context._jsc.sc()
        scala_context.maxNumConcurrentTasks.return_value = 8
        running = scala_context.taskScheduler().runningTasksByExecutors().valuesIterator()
        running.hasNext.return_value = False
        self.context._jvm.PythonUtils.getBroadcastThreshold.return_value = 1 << 20
        self._job = job
        self._brokers_run = self.context.parallelize.return_value.barrier.return_value
        submitted = self._brokers_run.mapPartitionsWithIndex.return_value._jrdd.collectAsync.return_value
        submitted.jobIds.side_effect = list
        submitted.get.side_effect = lambda: [pickle.dumps(list(self._job(self.jobs)))]

    @property
    def jobs(self) -> int:
        """How many were submitted."""
        return len(self._brokers_run.mapPartitionsWithIndex.call_args_list)

    @property
    def assignments(self) -> list[BrokerAssignment]:
        """What the brokers of all jobs were told."""
        calls = self._brokers_run.mapPartitionsWithIndex.call_args_list
        return [assignment for call in calls for assignment in call.args[0].args[0]]


def refused(_: int) -> list[BrokerEnd]:
    """A job whose broker finds that it can't be one."""
    return [BrokerEnd(0, refusal=REFUSAL)]
