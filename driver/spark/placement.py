"""On which hosts brokers are to run: where their directories lie, and the racks apart.

Spark puts a task wherever a slot is free, and a broker away from its directories begins with an empty disk.
So a broker's task prefers its home: the host where its directories were found before the first attempt, then
the one where it last ran for a while. Brokers without a home prefer hosts that are no other rack's: who loses
a host is to lose one replica of a partition with it.

These are preferences, since a copy that has to be made is better than a broker that is missing. Where a home
has no executor it is waited for, but not long; then a slot is taken that no other rack has a home for. Where
an executor at home has no slot Spark waits for `spark.locality.wait`.
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
from sparklog.types import BrokerId

HOME_WAIT_S: Final = 5.0
"""How long a rack waits for executors on the hosts of its directories, having lost those it had: a worker
that lives starts another within that."""


class Placement:
    """Where the brokers of one cluster are at home, and what slots its racks have. For any thread."""

    def __init__(
        self, slots: BrokerSlots, racks: Mapping[str, Sequence[BrokerId]], job_groups: Mapping[str, str]
    ) -> None:
        """`racks` has the brokers of each rack, in the order of its job's tasks, `job_groups` that job's."""
        # Held, since PySpark forgets it when the context is stopped, which may be in the middle of a look.
        self._context: Any = slots.spark_context._jsc.sc()
        self._slots = slots
        self._taken = 0
        """Of the slots for brokers: Spark only tells how many there are, taken or not."""
        self._brokers = {rack: tuple(node_ids) for rack, node_ids in racks.items()}
        self._racks = {node_id: rack for rack, node_ids in racks.items() for node_id in node_ids}
        self._job_groups = dict(job_groups)
        self._homes: dict[BrokerId, frozenset[str]] = {}
        self._waiting = set(self._brokers)
        """The racks that have no slots."""
        self._leaving: set[str] = set()
        """Those whose hosts Spark takes away."""
        self._lock = threading.Lock()

    def set_homes(self, homes: Mapping[BrokerId, Collection[str]]) -> None:
        """From now on these brokers are at home on these hosts, as Spark names them."""
        with self._lock:
            self._homes |= {node_id: frozenset(hosts) for node_id, hosts in homes.items() if hosts}

    def forget_homes(self, rack: str) -> None:
        """From now on any host will do for a rack: where it was it fails again and again."""
        with self._lock:
            self._forget_homes(rack)

    def leave_hosts(self, rack: str) -> None:
        """Spark takes an executor of the rack's away: its next attempt is not to wait for that host."""
        with self._lock:
            self._forget_homes(rack)
            self._leaving.add(rack)

    def take_slots(self, rack: str, waited_s: float) -> bool:
        """Take slots for a rack that has waited so long, if there are; return whether there were.

        They are for all its brokers or none: half a rack's help nobody. Those at the homes of other racks
        that wait are theirs: each would begin empty at the other's.

        Raises:
            Py4JError: the application ends.
        """

        def is_there(node_id: BrokerId) -> bool:
            return not hosts.keys().isdisjoint(self._homes.get(node_id, ()))

        brokers = self._brokers[rack]
        # One look for both: of an executor that is new here and not there nobody would know whose it is.
        hosts = hosts_with_executors(self._context)
        capacity = self._slots.capacity_of(sum(hosts.values()))
        with self._lock:
            if waited_s < HOME_WAIT_S and any(each in self._homes and not is_there(each) for each in brokers):
                return False
            theirs = sum(is_there(each) for other in self._waiting - {rack} for each in self._brokers[other])
            if capacity - self._taken - theirs < len(brokers):
                return False
            self._taken += len(brokers)
            self._waiting.discard(rack)
            return True

    def give_back(self, rack: str, *, has_served: bool) -> None:
        """A rack's job has ended; if it had served, its brokers are at home where it ran.

        Raises:
            Py4JError: the application ends.
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
        """A rack is not started again."""
        with self._lock:
            self._waiting.discard(rack)

    def preferred(self, rack: str) -> list[list[str]]:
        """Return the hosts that each of a rack's brokers prefers now; none where all are as good.

        Raises:
            Py4JError: the application ends.
        """
        hosts = hosts_with_executors(self._context)
        places: dict[BrokerId, Collection[str]] = {}
        if len(hosts) > 1:
            for other in self._brokers.keys() - {rack}:
                for task in running_tasks(self._context, self._job_groups[other]):
                    places[self._brokers[other][task.number]] = (task.host,)
        with self._lock:
            places = {**self._homes, **places}
        return [preferred_hosts(node_id, self._racks, places, hosts) for node_id in self._brokers[rack]]

    def _forget_homes(self, rack: str) -> None:
        for node_id in self._brokers[rack]:
            self._homes.pop(node_id, None)


def preferred_hosts(
    node_id: BrokerId,
    racks: Mapping[BrokerId, str],
    homes: Mapping[BrokerId, Collection[str]],
    hosts: Mapping[str, int],
) -> list[str]:
    """Return on which of `hosts` a broker is to run; empty if any will do.

    Directories that every host has, as where they mount one storage, are no reason to prefer one.

    Args:
        node_id: The broker.
        racks: The rack of each broker.
        homes: Where each broker is at home, or runs.
        hosts: How many executors each has.

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
    if not free:  # beside another rack, but not in the place of its broker
        return sorted(host for host, executors in hosts.items() if executors > others[host])
    of_nowhere = sorted(set(racks.values()) - {racks[other] for other in at_home})
    # Those of a rack that has a home elsewhere come after: it has its hosts already.
    return free[of_nowhere.index(rack) :: len(of_nowhere)] if rack in of_nowhere else free


def tasks_on(slots: BrokerSlots, preferred: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD of a partition for each of `preferred`, whose task takes a broker's slot on these hosts.

    They are preferred only, and what the elements are is nobody's concern.
    """
    tasks = _tasks_on(slots.spark_context, preferred)
    return tasks if slots.profile is None else tasks.withResources(slots.profile)


def _tasks_on(spark_context: SparkContext, preferred: Sequence[Sequence[str]]) -> RDD[Any]:
    if not any(preferred):
        return spark_context.parallelize(range(len(preferred)), len(preferred))
    # There is no way to say so from Python.
    java_virtual_machine: Any = spark_context._jvm
    located = [
        java_virtual_machine.scala.Tuple2(b"", java_virtual_machine.PythonUtils.toSeq(list(hosts)))
        for hosts in preferred
    ]
    java_tasks = spark_context._jsc.sc().makeRDD(
        java_virtual_machine.PythonUtils.toSeq(located), java_virtual_machine.scala.reflect.ClassTag.AnyRef()
    )
    return RDD(java_tasks.toJavaRDD(), spark_context, NoOpSerializer())
