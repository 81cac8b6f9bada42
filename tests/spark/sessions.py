"""Spark sessions for tests: one at a time, loopback only, ended with everything they started."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from sparklog.spark_versions import PYSPARK
from sparklog.user.dataframe import announce, register

REPOSITORY = Path(__file__).parent.parent.parent
SPARK_HOME = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
DISCOVERY_SCRIPT = REPOSITORY / "conf" / "discover-broker.sh"
HAS_PRIVATE_SOCKETS = PYSPARK >= (4, 1)
"""Whether Spark can do without the ports of barrier tasks, at which strangers end executors."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
BROKER_RESOURCE = {
    "spark.executor.resource.broker.amount": "1",
    "spark.executor.resource.broker.discoveryScript": str(DISCOVERY_SCRIPT),
    "spark.worker.resource.broker.amount": "1",
    "spark.worker.resource.broker.discoveryScript": str(DISCOVERY_SCRIPT),
}


@contextlib.contextmanager
def spark_session(master: str, **properties: str) -> Iterator[SparkSession]:
    """Yield a session of its own; property names have `_` for `.`."""
    os.environ["SPARK_HOME"] = str(SPARK_HOME)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Executors of a local cluster import the packages from here when they are not installed.
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    assert SparkSession.getActiveSession() is None, "another test left its session behind"
    builder = SparkSession.builder.master(master).appName("sparklog tests")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Each task beside others is another Python process, which imports Arrow for a second.
        "spark.default.parallelism": "2",
        "spark.log.level": "ERROR",
        **LOOPBACK,
    }
    for key, value in (
        defaults | {name.replace("_", "."): value for name, value in properties.items()}
    ).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def default_cluster(session: SparkSession, bootstrap_servers: str) -> Iterator[None]:
    """Let reads and writes of a session that name no cluster go to this one."""
    if PYSPARK >= (4, 1):
        register(session, bootstrap_servers)
        yield
        return
    with pytest.raises(RuntimeError, match=r"give reads and writes .* the option kafka\.bootstrap\.servers"):
        register(session, bootstrap_servers)
    with announce(session.sparkContext, bootstrap_servers):
        register(session)
        register(session, bootstrap_servers)
        yield
