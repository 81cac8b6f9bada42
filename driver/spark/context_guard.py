"""The user's calls on the SparkContext that a running cluster intercepts.

Two of them would kill the brokers. `cancelAllJobs`, which PySpark's handler of Ctrl-C calls too, must spare
them; `stop`, which `SparkSession.stop` and `with` blocks call too, must stop the cluster first. PySpark has
no hook for either, so while the cluster runs the context object has attributes of these names. Calls that
bypass PySpark and go to the JVM have Spark's effect: cancelled brokers are started again (`Rack`), and the
end of the context ends the cluster (`SparkCluster`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkContext

from sparklog.driver.spark.broker_jobs import BrokerJobs


class ContextGuard:
    """Replaces two methods of one context, from `install` to `remove`."""

    def __init__(
        self, spark_context: SparkContext, jobs: BrokerJobs, stop_cluster: Callable[[], None]
    ) -> None:
        """`stop_cluster` is called before the context is stopped."""
        self._context = spark_context
        self._jobs = jobs
        self._stop_cluster = stop_cluster

    def install(self) -> None:
        vars(self._context).update(cancelAllJobs=self._cancel_all_jobs, stop=self._stop)

    def remove(self) -> None:
        """Restore the context's own methods; idempotent."""
        for name in ("cancelAllJobs", "stop"):
            vars(self._context).pop(name, None)

    def _cancel_all_jobs(self) -> None:
        _in_another_thread(self._jobs.cancel_all_others)

    def _stop(self) -> None:
        try:
            self._stop_cluster()
        finally:
            self.remove()
            self._context.stop()


def _in_another_thread(action: Callable[[], None]) -> None:
    """Run an action in a thread of its own, and wait for it.

    A signal may interrupt a call to the JVM, whose answer this thread's connection waits for: PySpark's own
    `cancelAllJobs` then fails, and cancels nothing.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="sparklog cancels") as executor:
        executor.submit(action).result()
