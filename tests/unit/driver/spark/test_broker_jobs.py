"""Which jobs are cancelled with all others, as Spark's status store comes to hear of them."""

from types import SimpleNamespace
from typing import Any, cast

from pyspark import SparkContext

from sparklog.driver.spark.broker_jobs import BrokerJobs


class Spark:
    """A context's calls of Spark; one job was submitted, of which the store hears after it is first asked."""

    def __init__(self) -> None:
        self.heard = False
        self.cancelled: list[int] = []

    def getActiveJobIds(self) -> list[int]:  # noqa: N802 - Spark's name
        active, self.heard = ([0] if self.heard else []), True
        return active

    def getJobInfo(self, _: int) -> Any:  # noqa: N802 - Spark's name
        is_empty, self.heard = not self.heard, True
        return SimpleNamespace(isEmpty=lambda: is_empty)

    def context(self) -> SparkContext:
        scheduler = SimpleNamespace(numTotalJobs=lambda: 1)
        java_context = SimpleNamespace(
            statusTracker=lambda: self,
            dagScheduler=lambda: scheduler,
            cancelJob=lambda job_id, _: self.cancelled.append(job_id),
        )
        return cast(SparkContext, SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java_context)))


def test_job_that_the_store_hears_of_while_it_is_asked_is_cancelled() -> None:
    """It was in neither answer, and a user who had pressed Ctrl-C waited for his query all the same."""
    spark = Spark()
    BrokerJobs(spark.context()).cancel_all_others()
    assert spark.cancelled == [0]
