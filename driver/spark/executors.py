"""Asks Spark for executors for brokers that are added to a running cluster.

YARN and Kubernetes give an application as many executors as it asked for (`spark.executor.instances`). A
standalone master starts one on every worker with room as it is, which a limit would keep it from; local
modes have no more.
"""

import logging
from typing import Any

from sparklog.driver.spark.hosts import hosts_with_executors
from sparklog.driver.spark.slots import BrokerSlots

logger = logging.getLogger(__name__)


def ask_for_executors(slots: BrokerSlots, brokers: int) -> bool:
    """Ask for executors for so many more brokers, as far as there are no free slots for them.

    Returns whether Spark has asked the cluster manager for some.
    """
    context = slots.spark_context
    missing = brokers - slots.free_for_brokers()
    if missing <= 0 or not str(context.master).startswith(("yarn", "k8s://")):
        return False
    java_virtual_machine: Any = context._jvm
    java_context: Any = context._jsc.sc()
    present = sum(hosts_with_executors(java_context).values())
    configured = int(context.getConf().get("spark.executor.instances") or 0)
    total = max(present, configured) + missing
    no_hosts = java_virtual_machine.PythonUtils.toScalaMap(java_virtual_machine.java.util.HashMap())
    granted = bool(java_context.requestTotalExecutors(total, 0, no_hosts))
    logger.info("Spark is asked for %d executors, %d more%s", total, missing, "" if granted else ": refused")
    return granted
