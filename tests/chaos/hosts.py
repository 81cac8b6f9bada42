"""A Spark cluster of several hosts on this machine: without one, Spark runs no task twice at a time.

Speculation starts a second attempt only on a host that has none (`TaskSetManager.hasAttemptOnHost`), and all
workers of `local-cluster` have the same one. Here each has an address of its own out of 127.0.0.0/8. Master
and workers live in the driver's JVM, as those of `local-cluster` do, and end with it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

CORES: Final = 1
MEMORY_MB: Final = 512
DRIVER: Final = "127.0.0.1"


@contextlib.contextmanager
def session_of_hosts(
    hosts: int, name: str, place: Path, properties: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Yield the session of an application with an executor on each host; what they log goes to `place`."""
    own = {
        "spark.app.name": name,
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": DRIVER,
        "spark.executor.memory": f"{MEMORY_MB}m",
        "spark.master.rest.enabled": "false",
    }
    conf = SparkConf().setAll([*own.items(), *properties.items()])
    SparkContext._ensure_initialized(conf=conf)
    conf.setMaster(_start(hosts, place))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _start(hosts: int, place: Path) -> str:
    """Start the master and the workers; return the master's address."""
    gateway: Any = SparkContext._gateway
    deploy, conf = gateway.jvm.org.apache.spark.deploy, gateway.jvm.SparkConf()
    nothing = gateway.jvm.scala.Option.empty()
    master = deploy.master.Master.startRpcEnvAndEndpoint(DRIVER, 0, 0, conf)._1()
    addresses = gateway.new_array(gateway.jvm.String, 1)
    addresses[0] = f"spark://{DRIVER}:{master.address().port()}"
    for host in range(2, 2 + hosts):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{host}", 0, 0, CORES, MEMORY_MB, addresses, str(place), nothing, conf, nothing
        )
    return str(addresses[0])
