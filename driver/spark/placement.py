"""On which hosts brokers are to run: where their directories lie, and the racks apart.

Spark puts a task wherever a slot is free, and a broker away from its directories begins with an empty disk.
So a broker's task prefers its home: the host where its directories were found before the first attempt, then
the one where it ran last. Brokers without a home prefer hosts that are no other rack's: who loses a host is
to lose one replica of a partition with it.

These are preferences, since a copy that has to be made is better than a broker that is missing. Where a home
has no executor it is waited for, but not long; where one has no slot Spark waits for `spark.locality.wait`.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from driver.spark.hosts import hosts_with_executors
from sparklog.types import BrokerId

__all__ = ["HOME_WAIT_S", "Placement", "preferred_hosts", "tasks_on"]

HOME_WAIT_S: Final = 5.0
"""How long a rack waits for executors on the hosts of its directories, having lost those it had: a worker
that lives starts another within that."""


class Placement:
    """Where the brokers of one cluster are at home. May be used from any thread."""

    def __init__(self, spark_context: SparkContext, racks: Mapping[BrokerId, str]) -> None:
        """`racks` has every broker's rack."""
        # Held, since PySpark forgets it when the context is stopped, which may be in the middle of a look.
        self._context: Any = spark_context._jsc.sc()
        self._racks = dict(racks)
        self._homes: dict[BrokerId, frozenset[str]] = {}
        self._lock = threading.Lock()

    def set_homes(self, homes: Mapping[BrokerId, Collection[str]]) -> None:
        """From now on these brokers are at home on these hosts, as Spark names them."""
        with self._lock:
            self._homes |= {node_id: frozenset(hosts) for node_id, hosts in homes.items() if hosts}

    def lacks_a_home(self, node_ids: Sequence[BrokerId]) -> bool:
        """Return whether one of the brokers has a home, and Spark has no executor there.

        Raises:
            Py4JError: the application ends.
        """
        with self._lock:
            homes = [self._homes.get(node_id, frozenset[str]()) for node_id in node_ids]
        scheduler = self._context.taskScheduler()
        return any(
            hosts and not any(scheduler.hasExecutorsAliveOnHost(host) for host in hosts) for hosts in homes
        )

    def preferred(self, node_ids: Sequence[BrokerId]) -> list[list[str]]:
        """Return the hosts that each of the brokers prefers now; none where all are as good.

        Raises:
            Py4JError: the application ends.
        """
        hosts = hosts_with_executors(self._context)
        with self._lock:
            return [preferred_hosts(node_id, self._racks, self._homes, hosts) for node_id in node_ids]


def preferred_hosts(
    node_id: BrokerId,
    racks: Mapping[BrokerId, str],
    homes: Mapping[BrokerId, Collection[str]],
    hosts: Collection[str],
) -> list[str]:
    """Return on which of `hosts`, those that have executors, a broker is to run; empty if any will do.

    Directories that every host has, as where they mount one storage, are no reason to prefer one.

    >>> racks = {0: "a", 1: "b", 2: "c"}
    >>> [preferred_hosts(node_id, racks, {1: ["x"]}, ["x", "y", "z"]) for node_id in racks]
    [['y'], ['x'], ['z']]
    """
    if len(hosts) < 2:
        return []
    at_home = {
        other: sorted(there)
        for other in racks
        if (there := set(homes.get(other, ())).intersection(hosts)) and len(there) < len(hosts)
    }
    if node_id in at_home:
        return at_home[node_id]
    rack = racks[node_id]
    others = {host for other, there in at_home.items() if racks[other] != rack for host in there}
    free = sorted(set(hosts) - others)
    of_nowhere = sorted(set(racks.values()) - {racks[other] for other in at_home})
    # Those of a rack that has a home elsewhere come after: it has its hosts already.
    return free[of_nowhere.index(rack) :: len(of_nowhere)] if rack in of_nowhere else free


def tasks_on(spark_context: SparkContext, preferred: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD of a partition for each of `preferred`, whose task prefers these hosts.

    What its elements are is nobody's concern.
    """
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
