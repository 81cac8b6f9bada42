"""What a user's calls on the SparkContext do while a cluster runs in its application.

Two of them would take the brokers from under the cluster. `cancelAllJobs`, which PySpark's handler of Ctrl-C
calls too, is to spare them; `stop`, which `SparkSession.stop` and `with` blocks call too, is to let them
leave first. PySpark has no hook for either, so for as long as the cluster runs the context object has these
two names of its own. Whoever goes past PySpark, straight to the JVM, gets what Spark does: cancelled brokers
are started again (`Rack`), and a context that is gone takes the cluster along (`SparkCluster`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkContext

from sparklog.driver.spark.broker_jobs import BrokerJobs


class ContextGuard:
    """Two methods of one context, from `install` to `remove`."""

    def __init__(
        self, spark_context: SparkContext, jobs: BrokerJobs, stop_cluster: Callable[[], None]
    ) -> None:
        """`stop_cluster` is called before the context is stopped."""
        self._context = spark_context
        self._jobs = jobs
        self._stop_cluster = stop_cluster

    def install(self) -> None:
        """Have the context's calls come here first."""
        vars(self._context).update(cancelAllJobs=self._cancel_all_jobs, stop=self._stop)

    def remove(self) -> None:
        """Give the context its own methods back; safe to call twice."""
        for name in ("cancelAllJobs", "stop"):
            vars(self._context).pop(name, None)

    def _cancel_all_jobs(self) -> None:
        _beside_a_call(self._jobs.cancel_all_others)

    def _stop(self) -> None:
        try:
            self._stop_cluster()
        finally:
            self.remove()
            self._context.stop()


def _beside_a_call(action: Callable[[], None]) -> None:
    """Do something in a thread of its own, and wait for it.

    A signal may have come in the middle of a call to the JVM, for whose answer this thread's connection
    waits: PySpark's own `cancelAllJobs` fails then, and cancels nothing.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="sparklog cancels") as beside:
        beside.submit(action).result()
