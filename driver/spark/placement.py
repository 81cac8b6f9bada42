"""The hosts on which brokers should run: those of their directories, and different ones for different racks.

Spark puts a task on any free slot, and a broker away from its directories begins with an empty disk. So a
broker's task prefers its home: the host where its directories were found before the first attempt, then the
one where it last ran for a while. Brokers without a home prefer hosts without another rack: the loss of a
host should cost one replica of a partition.

These are preferences, since a copy of a log costs less than a missing broker. A home without an executor is
waited for, but not long; then a slot is taken that is not at the home of a rack that comes first. If an
executor at home has no slot Spark waits for `spark.locality.wait`.

Under dynamic allocation there is an executor for each broker and none to spare, and Spark starts another one
only for a task that waits. So slots are not counted, and a home without an executor stays the preference: on
YARN Spark asks for an executor there.
"""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from sparklog.driver.spark.broker_tasks import hosts_of_last_job, running_tasks
from sparklog.driver.spark.hosts import hosts_with_executors
from sparklog.driver.spark.slots import BrokerSlots
from sparklog.protocol.types import BrokerId

HOME_WAIT_S: Final = 5.0
"""How long a rack waits for new executors on the hosts of its directories: a live worker starts another
within that.
"""
NEW_EXECUTORS_WAIT_S: Final = 30.0
"""How long a rack leaves slots at the homes of another one that has too few of them: the executors of an
application that has lost all of them come one after the other.
"""


class Placement:
    """The homes of one cluster's brokers, and the slots of its racks. For any thread."""

    def __init__(
        self,
        slots: BrokerSlots,
        jobs: Mapping[str, Sequence[BrokerId]],
        job_groups: Mapping[str, str],
        racks: Mapping[BrokerId, str] | None = None,
    ) -> None:
        """Place the brokers of jobs, which are racks or parts of one.

        Args:
            slots: The slots for brokers.
            jobs: The brokers of each job, in the order of its tasks.
            job_groups: Spark's group of each job.
            racks: The rack of each broker; without it each job is a rack.
        """
        # Kept, since PySpark forgets it when the context is stopped, which may happen during a check.
        self._context: Any = slots.spark_context._jsc.sc()
        self._slots = slots
        self._taken = 0
        """Of the slots for brokers: Spark only reports their total, taken or not."""
        self._brokers = {job: tuple(node_ids) for job, node_ids in jobs.items()}
        self._racks = dict(racks or {node_id: job for job, node_ids in jobs.items() for node_id in node_ids})
        self._job_groups = dict(job_groups)
        self._homes: dict[BrokerId, frozenset[str]] = {}
        self._hosts_of_racks: Mapping[str, frozenset[str]] = {}
        """The preferred hosts of brokers without a home, by rack."""
        self._waiting = set(self._brokers)
        """The racks without slots."""
        self._leaving: set[str] = set()
        """The racks whose hosts Spark takes away."""
        self._lock = threading.Lock()

    def job_group(self, job: str) -> str:
        return self._job_groups[job]

    def add(self, job: str, rack: str, node_ids: Sequence[BrokerId], job_group: str) -> None:
        """Add a job of a rack, with its brokers in the order of its tasks."""
        with self._lock:
            self._brokers[job] = tuple(node_ids)
            self._racks |= dict.fromkeys(node_ids, rack)
            self._job_groups[job] = job_group
            self._waiting.add(job)

    def remove(self, job: str) -> None:
        """Forget a job that has ended for good. Its brokers' homes are kept: their directories stay there."""
        with self._lock:
            self._waiting.discard(job)
            for node_id in self._brokers.pop(job):
                del self._racks[node_id]

    def set_homes(self, homes: Mapping[BrokerId, Collection[str]]) -> None:
        """Set the homes of brokers, by Spark's names of hosts."""
        with self._lock:
            self._homes |= {node_id: frozenset(hosts) for node_id, hosts in homes.items() if hosts}

    def set_hosts_of_racks(self, hosts: Mapping[str, frozenset[str]]) -> None:
        """Set the hosts, by Spark's names, that brokers of a rack prefer, without waiting for one."""
        with self._lock:
            self._hosts_of_racks = hosts

    def forget_homes(self, rack: str) -> None:
        """Allow any host for a rack: it fails again and again on its own."""
        with self._lock:
            self._forget_homes(rack)

    def leave_hosts(self, rack: str) -> None:
        """Note that Spark removes an executor of the rack: its next attempt must not wait for that host."""
        with self._lock:
            self._forget_homes(rack)
            self._leaving.add(rack)

    def take_slots(self, rack: str, waited_s: float) -> bool:
        """Take slots for a rack that has waited so long; return whether there were enough.

        All its brokers get slots, or none. Slots at the homes of racks that come first are theirs: each rack
        would begin empty at the other's home. Racks whose brokers are all at home come first, and then those
        that were named first: two racks must not wait for each other's slots.

        Raises:
            Py4JError: the application is ending.
        """

        def is_there(node_id: BrokerId) -> bool:
            return not hosts.keys().isdisjoint(self._homes.get(node_id, ()))

        brokers = self._brokers[rack]
        if self._slots.allocated:
            with self._lock:
                self._taken += len(brokers)
                self._waiting.discard(rack)
            return True
        # One look for both: a second one could count an executor whose host the first one missed.
        hosts = hosts_with_executors(self._context)
        capacity = self._slots.capacity_of(sum(hosts.values()))
        with self._lock:
            # In local mode Spark names no host of executors.
            away = hosts and any(each in self._homes and not is_there(each) for each in brokers)
            if away and waited_s < HOME_WAIT_S:
                return False
            free = capacity - self._taken
            in_order = sorted(
                (job for job in self._brokers if job == rack or job in self._waiting),
                key=lambda job: not all(map(is_there, self._brokers[job])),
            )
            theirs = 0
            for other in in_order[: in_order.index(rack)]:
                if len(self._brokers[other]) <= free or waited_s < NEW_EXECUTORS_WAIT_S:
                    theirs += sum(map(is_there, self._brokers[other]))
            if free - theirs < len(brokers):
                return False
            self._taken += len(brokers)
            self._waiting.discard(rack)
            return True

    def give_back(self, rack: str, *, has_served: bool) -> None:
        """Note the end of a rack's job; if it had served, its brokers are at home where it ran.

        Raises:
            Py4JError: the application is ending.
        """
        with self._lock:
            self._taken -= len(self._brokers[rack])
            self._waiting.add(rack)
            is_leaving = rack in self._leaving
            self._leaving.discard(rack)
        if has_served and not is_leaving:
            hosts = hosts_of_last_job(self._context, self._job_groups[rack])
            self.set_homes({self._brokers[rack][number]: {host} for number, host in hosts.items()})

    def ended(self, rack: str) -> None:
        """Note that a rack is not started again."""
        with self._lock:
            self._waiting.discard(rack)

    def preferred(self, rack: str) -> list[list[str]]:
        """Return the preferred hosts of each of a rack's brokers; empty if all hosts are equal.

        Raises:
            Py4JError: the application is ending.
        """
        hosts = hosts_with_executors(self._context, self._slots.executor_profile)
        places: dict[BrokerId, Collection[str]] = {}
        if len(hosts) > 1:
            with self._lock:
                others = {each: brokers for each, brokers in self._brokers.items() if each != rack}
            for other, brokers in others.items():
                for task in running_tasks(self._context, self._job_groups[other]):
                    places[brokers[task.number]] = (task.host,)
        with self._lock:
            homes = dict(self._homes)
            racks = dict(self._racks)
            for node_id, rack_name in racks.items():
                if rack_name in self._hosts_of_racks:
                    homes.setdefault(node_id, self._hosts_of_racks[rack_name])
        chosen = []
        for node_id in self._brokers[rack]:
            home = homes.get(node_id, frozenset())
            if self._slots.allocated and home and hosts.keys().isdisjoint(home):
                chosen.append(sorted(home))
            else:
                chosen.append(preferred_hosts(node_id, racks, {**homes, **places}, hosts))
        return chosen

    def _forget_homes(self, rack: str) -> None:
        for node_id in self._brokers[rack]:
            self._homes.pop(node_id, None)


def preferred_hosts(
    node_id: BrokerId,
    racks: Mapping[BrokerId, str],
    homes: Mapping[BrokerId, Collection[str]],
    hosts: Mapping[str, int],
) -> list[str]:
    """Return the preferred ones of `hosts` for a broker; empty if all are equal.

    Directories that every host has, as on shared storage, are no reason for a preference.

    Args:
        node_id: The broker.
        racks: The rack of each broker.
        homes: The home or current host of each broker.
        hosts: The number of executors of each host.

    >>> racks = {0: "a", 1: "b", 2: "c"}
    >>> [preferred_hosts(node_id, racks, {1: ["x"]}, dict.fromkeys("xyz", 1)) for node_id in racks]
    [['y'], ['x'], ['z']]
    """
    if len(hosts) < 2:
        return []
    at_home = {
        other: sorted(there)
        for other in racks
        if (there := hosts.keys() & homes.get(other, ())) and len(there) < len(hosts)
    }
    if node_id in at_home:
        return at_home[node_id]
    rack = racks[node_id]
    others = Counter(host for other, there in at_home.items() if racks[other] != rack for host in there)
    free = sorted(hosts.keys() - others.keys())
    if not free:  # on a host of another rack, but not in the slot of its broker
        return sorted(host for host, executors in hosts.items() if executors > others[host])
    of_nowhere = sorted(set(racks.values()) - {racks[other] for other in at_home})
    # Racks with a home elsewhere come last: they have their hosts already.
    return free[of_nowhere.index(rack) :: len(of_nowhere)] if rack in of_nowhere else free


def tasks_on(slots: BrokerSlots, preferred: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD with a partition for each of `preferred`, in a broker's slot on these hosts.

    The hosts are preferences only; the elements have no meaning.
    """
    tasks = _tasks_on(slots.spark_context, preferred)
    return tasks if slots.profile is None else tasks.withResources(slots.profile)


def _tasks_on(spark_context: SparkContext, preferred: Sequence[Sequence[str]]) -> RDD[Any]:
    if not any(preferred):
        return spark_context.parallelize(range(len(preferred)), len(preferred))
    # Python has no API for it.
    java_virtual_machine: Any = spark_context._jvm
    located = [
        java_virtual_machine.scala.Tuple2(b"", java_virtual_machine.PythonUtils.toSeq(list(hosts)))
        for hosts in preferred
    ]
    java_tasks = spark_context._jsc.sc().makeRDD(
        java_virtual_machine.PythonUtils.toSeq(located), java_virtual_machine.scala.reflect.ClassTag.AnyRef()
    )
    return RDD(java_tasks.toJavaRDD(), spark_context, NoOpSerializer())
