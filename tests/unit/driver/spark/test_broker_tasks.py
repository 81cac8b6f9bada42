"""Tasks of brokers as Spark's status store lists them."""

from typing import Any
from unittest.mock import MagicMock

from sparklog.driver.spark.broker_tasks import has_running_tasks, running_tasks


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
