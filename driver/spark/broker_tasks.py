"""The executors on which Spark runs a rack's brokers.

Spark's status store lists a task as soon as it has started. The tasks of a rack's job are numbered like its
brokers.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_MANY: Final = 10_000


class RunningTask(NamedTuple):
    stage_id: int
    number: int
    executor_id: str
    host: str


def running_tasks(java_context: Any, job_group: str) -> list[RunningTask]:
    """Return the running tasks of the group's jobs.

    Raises:
        Py4JError: the application is ending.
    """
    tracker = java_context.statusTracker()
    running = []
    for job_id in tracker.getJobIdsForGroup(job_group):
        job = tracker.getJobInfo(job_id)
        if job.isEmpty() or str(job.get().status()) != "RUNNING":
            continue
        running += [
            RunningTask(stage_id, task.index(), str(task.executorId()), str(task.host()))
            for stage_id, task in _tasks_of(java_context, job.get())
            if str(task.status()) == "RUNNING"
        ]
    return running


def has_running_tasks(java_context: Any, job_group: str) -> bool:
    """Whether a task of the group runs, be it of a job that has ended: Spark kills such tasks later.

    Raises:
        Py4JError: the application is ending.
    """
    tracker = java_context.statusTracker()
    jobs = (tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup(job_group))
    return any(
        str(task.status()) == "RUNNING"
        for job in jobs
        if not job.isEmpty()
        for _, task in _tasks_of(java_context, job.get())
    )


def hosts_of_last_job(java_context: Any, job_group: str, *, only_successful: bool = False) -> dict[int, str]:
    """Return the host of the first start of each task of the group's latest job, successful or not.

    Later starts are Spark's own, of tasks that end at once. With `only_successful`, the host where it
    succeeded: of a task and its speculative copy one does.

    Raises:
        Py4JError: the application is ending.
    """
    tracker = java_context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(job_group), default=-1))
    hosts: dict[int, tuple[int, str]] = {}
    for _, task in () if job.isEmpty() else _tasks_of(java_context, job.get()):
        if only_successful and str(task.status()) != "SUCCESS":
            continue
        started = (task.attempt(), str(task.host()))
        hosts[task.index()] = min(hosts.get(task.index(), started), started)
    return {number: host for number, (_, host) in hosts.items()}


def launch_of_last_job(java_context: Any, job_group: str) -> float | None:
    """Return when a task of the group's latest job was first launched, in seconds since 1970.

    None if Spark has launched none.

    Raises:
        Py4JError: the application is ending.
    """
    tracker = java_context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(job_group), default=-1))
    tasks = () if job.isEmpty() else _tasks_of(java_context, job.get())
    launches = [task.launchTime().getTime() / 1_000 for _, task in tasks if task.attempt() == 0]
    return min(launches, default=None)


def executor_logs(java_context: Any, executor_id: str) -> tuple[tuple[str, str], ...]:
    """Return the names and URLs of an executor's logs, as linked from Spark's own pages.

    Raises:
        Py4JJavaError: the executor is unknown.
        Py4JError: the application is ending.
    """
    logs = java_context.statusStore().executorSummary(executor_id).executorLogs().iterator()
    found = []
    while logs.hasNext():
        entry = logs.next()
        found.append((str(entry._1()), str(entry._2())))
    return tuple(sorted(found))


def _tasks_of(java_context: Any, job: Any) -> Iterator[tuple[int, Any]]:
    """Yield every started task of a job with the id of its stage."""
    store = java_context.statusStore()
    for stage_id in job.stageIds():
        tasks = store.taskList(stage_id, 0, _MANY)
        for number in range(tasks.size()):
            yield stage_id, tasks.apply(number)
