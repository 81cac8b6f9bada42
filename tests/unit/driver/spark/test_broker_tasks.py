"""Tasks of brokers as Spark's status store lists them."""

from typing import Any
from unittest.mock import MagicMock

from sparklog.driver.spark.broker_tasks import (
    has_running_tasks,
    hosts_of_last_job,
    launch_of_last_job,
    running_tasks,
)


class Tasks(list[Any]):
    """A Scala sequence of tasks."""

    def size(self) -> int:
        return len(self)

    def apply(self, number: int) -> Any:
        return self[number]


def application(job_status: str, *tasks: dict[str, object]) -> Any:
    """Return Spark's context with one job, of one stage with these tasks."""
    context = MagicMock()
    context.statusTracker().getJobIdsForGroup.return_value = [3]
    job = context.statusTracker().getJobInfo.return_value
    job.isEmpty.return_value = False
    job.get().status.return_value = job_status
    job.get().stageIds.return_value = [5]
    context.statusStore().taskList.return_value = Tasks(
        MagicMock(**{f"{name}.return_value": value for name, value in task.items()}) for task in tasks
    )
    return context


def test_tasks_of_a_cancelled_job_run_until_spark_has_killed_them() -> None:
    """A broker that was submitted before that found no free executor, and had Spark start another one."""
    dying = application("FAILED", {"status": "SUCCESS"}, {"status": "RUNNING"})
    assert has_running_tasks(dying, "group") and not running_tasks(dying, "group")
    assert not has_running_tasks(application("FAILED", {"status": "KILLED"}), "group")


def test_broker_ran_where_and_since_its_first_start() -> None:
    """Spark starts a lost task again, elsewhere, and that ends at once: the broker's disk is not there."""

    def start(attempt: int, host: str, launched_ms: int) -> dict[str, object]:
        launched = MagicMock(**{"getTime.return_value": launched_ms})
        return {"index": 0, "attempt": attempt, "host": host, "launchTime": launched}

    lost = application("FAILED", start(1, "elsewhere", 60_000), start(0, "home", 50_000))
    assert hosts_of_last_job(lost, "group") == {0: "home"}
    assert launch_of_last_job(lost, "group") == 50.0
    assert launch_of_last_job(application("FAILED"), "group") is None
