"""The hosts of Spark's executors, and whether a host or an address is this machine's.

Spark knows a host by any name that a worker was given, so names are compared by their addresses. A name that
does not resolve here belongs to another machine.
"""

import ipaddress
import socket
import time
from collections import Counter
from typing import Any, Final

from pyspark import SparkContext

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


def is_this_machine(host: str) -> bool:
    for family, address in _addresses(host):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return True
    return False


def is_loopback(host: str) -> bool:
    addresses = _addresses(host)
    return bool(addresses) and all(ipaddress.ip_address(address).is_loopback for _, address in addresses)


def _addresses(host: str) -> set[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return set()
    return {
        (family, str(address[0]))
        for family, _, _, _, address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    }
