"""Finds on which hosts the directories of an earlier application lie, before the brokers are started.

Nothing of the driver's outlives it, and where brokers ran is known to nobody but their disks. So a task looks
on each host that has an executor. Where all executors are on one host there is nothing to ask.
"""

import logging
import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread

from driver.spark.broker_jobs import BrokerJobs, forget_local_properties
from driver.spark.broker_tasks import hosts_of_last_job
from driver.spark.calls import answered
from driver.spark.hosts import hosts_with_executors
from driver.spark.placement import tasks_on
from driver.spark.slots import BrokerSlots
from sparklog.hosting import BrokerAssignment
from sparklog.storage.directories_found import look_for_directories
from sparklog.types import BrokerId

__all__ = ["find_directories", "homes_of"]

SEARCH_TIMEOUT_S: Final = 30.0
"""Spark may have no slot for a task on a host that is asked, and the brokers are not to wait for ever."""
CALL_SITE: Final = "Kafka brokers' directories"
_LISTED_WITHIN_S: Final = 5.0
_LIST_POLL_S: Final = 0.02

logger = logging.getLogger(__name__)


def find_directories(
    slots: BrokerSlots, jobs: BrokerJobs, job_group: str, assignments: Sequence[BrokerAssignment]
) -> dict[BrokerId, set[str]]:
    """Return the hosts on which brokers' directories lie, as Spark names them; without those found nowhere.

    Returns after `SEARCH_TIMEOUT_S` at the latest, then with nothing, as where the job fails: the brokers'
    own jobs will say what ails them.
    """
    homes: dict[BrokerId, set[str]] = {}

    def search() -> None:
        try:
            homes.update(_search(slots, jobs, job_group, assignments))
        except (Py4JError, OSError) as error:
            first_line = str(error).partition("\n")[0]
            logger.warning("The brokers' directories could not be looked for: %s", first_line)

    # In a thread of its own: the group of its job is nothing for the jobs of whoever starts a cluster.
    thread = InheritableThread(target=search, name="sparklog directories", daemon=True)
    thread.start()
    thread.join(SEARCH_TIMEOUT_S)
    if thread.is_alive():
        logger.warning("The brokers' directories were not found within %.0f s", SEARCH_TIMEOUT_S)
        slots.spark_context.cancelJobGroup(job_group)
        return {}
    return homes


def homes_of(
    found: Iterable[tuple[int, Mapping[BrokerId, float]]], hosts: Mapping[int, str]
) -> dict[BrokerId, set[str]]:
    """Return of each broker the hosts with its latest directories.

    Args:
        found: A task's number, and the time of the last change of each broker's directories where it ran.
        hosts: Where each task ran.

    >>> homes_of([(0, {7: 5.0}), (1, {7: 6.0}), (2, {7: 6.0, 8: 1.0})], {0: "x", 1: "y", 2: "z"})[8]
    {'z'}
    """
    by_broker: dict[BrokerId, dict[str, float]] = {}
    for number, changes in found:
        for node_id, changed_s in changes.items():
            by_broker.setdefault(node_id, {})[hosts[number]] = changed_s
    return {
        node_id: {host for host, changed_s in there.items() if changed_s == max(there.values())}
        for node_id, there in by_broker.items()
    }


def _search(
    slots: BrokerSlots, jobs: BrokerJobs, job_group: str, assignments: Sequence[BrokerAssignment]
) -> dict[BrokerId, set[str]]:
    context = slots.spark_context
    forget_local_properties(context)
    java_context = context._jsc.sc()
    hosts = sorted(hosts_with_executors(java_context))
    if len(hosts) < 2:
        return {}
    tasks = tasks_on(context, [[host] for host in hosts])
    if slots.profile is not None:
        tasks = tasks.withResources(slots.profile)
    directories = {assignment.node_id: assignment.directories for assignment in assignments}
    looking = tasks.mapPartitionsWithIndex(partial(look_for_directories, directories))
    context.setJobGroup(job_group, "sparklog looks for the brokers' directories", interruptOnCancel=True)
    context._jsc.setCallSite(CALL_SITE)
    with jobs.running(looking._jrdd.collectAsync) as future:
        found = [each for batch in answered(future.get) for each in pickle.loads(bytes(batch))]
    # Spark's status store hears of the tasks a moment after they were run.
    deadline_s = time.monotonic() + _LISTED_WITHIN_S
    while len(ran_on := hosts_of_last_job(java_context, job_group)) < len(found):
        if time.monotonic() > deadline_s:
            return {}
        time.sleep(_LIST_POLL_S)
    return homes_of(found, ran_on)
