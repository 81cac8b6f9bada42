"""The hosts of Spark's executors, by Spark's names, and whether a host is reached over loopback alone."""

import ipaddress
import time
from collections import Counter
from typing import Any, Final

from pyspark import SparkContext

from sparklog.node.own_addresses import addresses

REGISTRATION_WAIT_S: Final = 5.0
"""Spark lists an executor a moment after it has counted its slots."""


def executor_hosts(spark_context: SparkContext, executor_count: int) -> set[str]:
    """Return the hosts of this application, the driver's included.

    Waits a moment for `executor_count` executors to be listed.
    """
    tracker: Any = spark_context._jsc.sc().statusTracker()
    deadline_s = time.monotonic() + REGISTRATION_WAIT_S
    while True:
        # The driver is one of them.
        hosts = [str(executor.host()).strip("[]") for executor in tracker.getExecutorInfos()]
        if len(hosts) > executor_count or time.monotonic() > deadline_s:
            return set(hosts)
        time.sleep(0.05)


def hosts_with_executors(java_context: Any, profile: int | None = None) -> dict[str, int]:
    """Return the number of executors of Spark's scheduler by host name, with a `profile` of those alone.

    Raises:
        Py4JError: the application is ending.
    """
    scheduler = java_context.taskScheduler()
    if profile is not None:
        listed = java_context.statusStore().executorList(True).iterator()
        of_profile: Counter[str] = Counter()
        while listed.hasNext():
            executor = listed.next()
            if executor.resourceProfileId() == profile and scheduler.isExecutorAlive(executor.id()):
                of_profile[str(executor.hostPort()).rpartition(":")[0]] += 1
        return dict(of_profile)
    hosts = {str(executor.host()) for executor in java_context.statusTracker().getExecutorInfos()}
    executors = {host: scheduler.getExecutorsAliveOnHost(host) for host in hosts}
    return {host: int(alive.get().size()) for host, alive in executors.items() if alive.isDefined()}


def is_loopback(host: str) -> bool:
    found = addresses(host)
    return bool(found) and all(ipaddress.ip_address(address).is_loopback for _, address in found)
