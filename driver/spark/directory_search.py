"""Finds the hosts with the directories of an earlier application, before the brokers are started.

The driver leaves nothing behind, so only the brokers' disks show where brokers ran. A task looks on each host
that has an executor; if all executors are on one host, no search is needed. A broker whose directories are
not found would begin empty, and if all are not, so would the cluster: a start fails if a host could not be
searched.

In a running cluster brokers have the slots of their hosts, where no other broker can start. So the hosts with
a free slot are searched for the directories of further brokers, and a search that fails keeps none from
starting: a broker that begins empty is a new replica.
"""

import logging
import pickle
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread

from sparklog.driver.spark.broker_jobs import BrokerJobs, forget_local_properties
from sparklog.driver.spark.broker_tasks import hosts_of_last_job
from sparklog.driver.spark.calls import answered
from sparklog.driver.spark.hosts import hosts_with_executors
from sparklog.driver.spark.placement import tasks_on
from sparklog.driver.spark.preflight import SLOT_WAIT_S
from sparklog.driver.spark.slots import BrokerSlots, is_local_mode
from sparklog.hosting import BrokerAssignment, StartError
from sparklog.node.storage.directory.directory_search import (
    FoundDirectories,
    look_for_directories,
    search_directories,
)
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)

CALL_SITE: Final = "Kafka brokers' directories"
RUNNING_WAIT_S: Final = 10.0
"""Time for a search in a running cluster: a slot that was free may have been taken."""
_LISTED_WITHIN_S: Final = 5.0
_LIST_POLL_S: Final = 0.02

Found = dict[BrokerId, FoundDirectories]


def find_directories(
    slots: BrokerSlots, jobs: BrokerJobs, job_group: str, assignments: Sequence[BrokerAssignment]
) -> dict[BrokerId, set[str]]:
    """Return the hosts with brokers' directories, by Spark's names; without brokers that were not found.

    Dynamic allocation starts executors on any hosts, so a warning says if none of them has directories.

    Raises:
        StartError: a host could not be searched within `SLOT_WAIT_S`, as long as a start waits for slots.
    """
    directories = {assignment.node_id: assignment.directories for assignment in assignments}
    search = _Search(slots, jobs, job_group, directories, hosts_to_search=1 if slots.allocated else 2)
    homes = homes_of(_searched(search))
    if slots.allocated and not homes:
        logger.warning(
            "No broker's directories of log.dirs (%s) exist on the hosts on which dynamic allocation has "
            "started executors (%s): all brokers begin empty, as a NEW cluster. If an earlier application's "
            "directories are on other hosts, stop this cluster before it is used, and start it where Spark "
            "starts executors on those hosts (docs/deploy.md)",
            ", ".join(path for paths in directories.values() for path in paths),
            ", ".join(sorted(search.found)) or "none is left",
        )
    return homes


def find_directories_beside_brokers(
    slots: BrokerSlots, jobs: BrokerJobs, job_group: str, assignments: Sequence[BrokerAssignment]
) -> dict[BrokerId, set[str]]:
    """Return the hosts with a free slot, by Spark's names, that have directories of these further brokers."""
    directories = {assignment.node_id: assignment.directories for assignment in assignments}
    search = _Search(slots, jobs, job_group, directories, beside_brokers=True)
    _run(search, RUNNING_WAIT_S)
    if search.failure is not None or search.unasked:
        reason = search.failure or f"no free slot any longer on {', '.join(sorted(search.unasked))}"
        brokers = ", ".join(map(str, directories))
        logger.warning(
            "Directories of broker %s were not looked for on every host with a free slot; a broker whose "
            "directories are not found begins empty: %s",
            brokers,
            str(reason).partition("\n")[0],
        )
    return homes_of(dict(search.found))


def _run(search: "_Search", timeout_s: float) -> None:
    # A thread of its own, so that the group of its jobs does not apply to the caller's jobs.
    thread = InheritableThread(target=search.run, name="sparklog directories", daemon=True)
    thread.start()
    try:
        thread.join(timeout_s)
    finally:
        if thread.is_alive():  # timed out or interrupted
            search.stop()


def _searched(search: "_Search") -> Mapping[str, Found]:
    _run(search, SLOT_WAIT_S)
    if search.failure is not None:
        first_line = str(search.failure).partition("\n")[0]
        raise StartError(f"the executors could not look for the brokers' directories: {first_line}")
    if search.unasked:
        raise StartError(
            f"{', '.join(sorted(search.unasked))} could not be searched for brokers' directories within "
            f"{SLOT_WAIT_S:.0f} s: no executor there has a slot for a broker's task; end the jobs "
            "of yours that run there, or wait for them"
        )
    return search.found


def ids_per_rack_of_brokers(
    slots: BrokerSlots, jobs: BrokerJobs, job_group: str, directories: Mapping[BrokerId, Sequence[str]]
) -> dict[BrokerId, int | None]:
    """Return which of these brokers have directories on any host, also if there is one host only.

    Each comes with the number of ids a rack that its directories have, None if they are older.

    Raises:
        StartError: a host could not be searched.
    """
    if is_local_mode(slots.spark_context):
        return ids_per_rack_of([search_directories(directories)])
    return ids_per_rack_of(
        _searched(_Search(slots, jobs, job_group, directories, hosts_to_search=1)).values()
    )


def ids_per_rack_of(found: Collection[Found]) -> dict[BrokerId, int | None]:
    """Return the number of ids a rack that each broker's directories have, without those of other clusters.

    The cluster of most directories counts; the others were left on the hosts by another application.

    >>> ours, old, other = (FoundDirectories(1.0, *each) for each in ((2, "A"), (None, "A"), (1, "B")))
    >>> ids_per_rack_of([{0: old, 1: ours}, {0: ours, 2: other}])
    {0: 2, 1: 2}
    """
    clusters = Counter(
        there.cluster_id for on_host in found for there in on_host.values() if there.cluster_id is not None
    )
    own = {None, *(cluster_id for cluster_id, _ in clusters.most_common(1))}
    numbers: dict[BrokerId, int | None] = {}
    for on_host in found:
        for node_id, there in on_host.items():
            if there.cluster_id in own:
                numbers[node_id] = numbers.get(node_id) or there.ids_per_rack
    return numbers


def homes_of(found: Mapping[str, Found]) -> dict[BrokerId, set[str]]:
    """Return the hosts with the latest directories of each broker.

    >>> five, six = FoundDirectories(5.0, 1), FoundDirectories(6.0, 1)
    >>> homes_of({"x": {7: five}, "y": {7: six}, "z": {8: five}})
    {7: {'y'}, 8: {'z'}}
    """
    by_broker: dict[BrokerId, dict[str, float]] = {}
    for host, changes in found.items():
        for node_id, there in changes.items():
            by_broker.setdefault(node_id, {})[host] = there.changed_s
    return {
        node_id: {host for host, changed_s in hosts.items() if changed_s == max(hosts.values())}
        for node_id, hosts in by_broker.items()
    }


class _Search:
    """Searches every host; again if Spark ran its task elsewhere for want of a slot."""

    def __init__(
        self,
        slots: BrokerSlots,
        jobs: BrokerJobs,
        job_group: str,
        directories: Mapping[BrokerId, Sequence[str]],
        *,
        hosts_to_search: int = 2,
        beside_brokers: bool = False,
    ) -> None:
        """Look for `directories`, if there are as many hosts as `hosts_to_search`.

        With `beside_brokers` only the hosts with a free slot are looked at.
        """
        self.found: dict[str, Found] = {}
        """By searched host."""
        self.unasked: set[str] = set()
        self.failure: Exception | None = None
        self._slots = slots
        self._jobs = jobs
        self._job_group = job_group
        self._directories = directories
        self._hosts_to_search = hosts_to_search
        self._beside_brokers = beside_brokers
        self._stopping = threading.Event()

    def run(self) -> None:
        context = self._slots.spark_context
        try:
            forget_local_properties(context)
            hosts = self._hosts()
            while len(hosts) >= self._hosts_to_search and not self._stopping.is_set():
                self.unasked = hosts - self.found.keys()
                if not self.unasked:
                    return
                self._ask(sorted(self.unasked))
                hosts = self._hosts()
            if not self._stopping.is_set():
                self.unasked = set()
        except (Py4JError, OSError) as error:
            if not self._stopping.is_set():
                self.failure = error

    def _hosts(self) -> set[str]:
        if self._beside_brokers:
            return self._slots.free_hosts()
        java_context = self._slots.spark_context._jsc.sc()
        return set(hosts_with_executors(java_context, self._slots.executor_profile))

    def stop(self) -> None:
        """Stop searching; cancels the jobs."""
        self._stopping.set()
        self._slots.spark_context.cancelJobGroup(self._job_group)

    def _ask(self, hosts: Sequence[str]) -> None:
        context = self._slots.spark_context
        tasks = tasks_on(self._slots, [[host] for host in hosts])
        looking = tasks.mapPartitionsWithIndex(partial(look_for_directories, self._directories))
        context.setJobGroup(
            self._job_group, "sparklog looks for the brokers' directories", interruptOnCancel=True
        )
        context._jsc.setCallSite(CALL_SITE)
        with self._jobs.running(looking._jrdd.collectAsync) as future:
            found = [each for batch in answered(future.get) for each in pickle.loads(bytes(batch))]
        ran_on = self._ran_on(len(found))
        self.found |= {ran_on[number]: changes for number, changes in found if number in ran_on}

    def _ran_on(self, tasks: int) -> Mapping[int, str]:
        # Spark's status store learns of tasks a moment after they have run.
        deadline_s = time.monotonic() + _LISTED_WITHIN_S
        java_context = self._slots.spark_context._jsc.sc()
        while True:
            hosts = hosts_of_last_job(java_context, self._job_group, only_successful=True)
            if len(hosts) == tasks or time.monotonic() > deadline_s:
                return hosts
            time.sleep(_LIST_POLL_S)
