"""The executors that a cluster manager starts on request, for brokers that are added to a running cluster.

YARN and Kubernetes give an application the number of executors that it asked for last, at first
`spark.executor.instances`. A standalone master starts one on every worker with room as it is, which a limit
would keep it from; local modes have no more.

A cluster larger than its application's start needs as many executors more as it has more brokers. Spark
forgets a number that it asked for with the application master (YarnSchedulerBackend's `reset`; the next
one begins with `spark.executor.instances`), and an application over the directories of a larger cluster
never asked: so the caller asks whenever brokers wait for executors. The number depends on nothing but the
cluster's size, and asking again changes nothing.
"""

import logging
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from sparklog.driver.spark.hosts import hosts_with_executors
from sparklog.driver.spark.slots import BrokerSlots

logger = logging.getLogger(__name__)

DEFAULT_INSTANCES: Final = 2
"""Spark's, where `spark.executor.instances` is not set (SchedulerBackendUtils)."""


class ExecutorRequests:
    """Asks for the executors of one cluster, which `started` brokers began."""

    def __init__(self, slots: BrokerSlots, started: int) -> None:
        self._slots = slots
        self._started = started
        self._java_context: Any = slots.spark_context._jsc.sc()
        self._java_virtual_machine: Any = slots.spark_context._jvm

    def ask(self, brokers: int) -> bool:
        """Ask for the executors of so many brokers in all; return whether the cluster manager was asked."""
        if not _starts_on_request(self._slots) or brokers <= self._started:
            return False
        present = sum(hosts_with_executors(self._java_context).values())
        total = wanted_executors(_configured(self._slots), present, started=self._started, brokers=brokers)
        to_scala = self._java_virtual_machine.PythonUtils.toScalaMap
        no_hosts = to_scala(self._java_virtual_machine.java.util.HashMap())
        try:
            granted = bool(self._java_context.requestTotalExecutors(total, 0, no_hosts))
        except Py4JJavaError as error:  # the application master has just ended
            logger.warning("Spark can't ask for %d executors: %s", total, error.java_exception)
            return False
        logger.info(
            "Spark is asked for %d executors for %d brokers%s",
            total,
            brokers,
            "" if granted else ": refused",
        )
        return granted


def wanted_executors(configured: int, present: int, *, started: int, brokers: int) -> int:
    """Return the number of executors of an application whose cluster has grown from `started` brokers.

    Those for tasks of the user's own stay, and none that is present is given up.

    >>> wanted_executors(configured=4, present=4, started=3, brokers=5)
    6
    >>> wanted_executors(configured=4, present=9, started=3, brokers=5)
    9
    """
    return max(present, configured + brokers - started)


def executors_to_come(slots: BrokerSlots) -> int:
    """Return how many executors of `spark.executor.instances` the cluster manager has not started yet."""
    if not _starts_on_request(slots):
        return 0
    backend: Any = slots.spark_context._jsc.sc().schedulerBackend()
    return max(_configured(slots) - int(backend.getExecutorIds().size()), 0)


def _starts_on_request(slots: BrokerSlots) -> bool:
    # Under dynamic allocation a job that waits is what makes Spark start an executor.
    return not slots.allocated and str(slots.spark_context.master).startswith(("yarn", "k8s://"))


def _configured(slots: BrokerSlots) -> int:
    return int(slots.spark_context.getConf().get("spark.executor.instances") or DEFAULT_INSTANCES)
