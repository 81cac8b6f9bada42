"""The cluster as a Spark application: `spark-submit jobs/serve.py [properties file]`.

Prints `bootstrap.servers=...` on standard output when the cluster is up, serves until SIGTERM or Ctrl-C, then
stops cleanly with status 0. Over the directories of an earlier run it continues the same cluster. If Spark
ends first, its JVM killed or its context stopped, or another driver takes the cluster over, it exits with
status 1, so that a supervisor restarts it. Racks and brokers a rack are the Spark properties
`spark.sparklog.racks` (default 3) and `spark.sparklog.brokers.per.rack` (default 1).
"""

import argparse
import importlib
import logging
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

import sparklog
from sparklog.driver.spark.calls import is_stopped
from sparklog.driver.spark.private_sockets import have_private_sockets
from sparklog.driver.spark.stop_signal import StopSignal
from sparklog.node.log_lines import written_aside
from sparklog.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

POLL_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A Kafka cluster inside this Spark application.")
    parser.add_argument(
        "properties", nargs="?", type=Path, help="Kafka's configuration keys, a properties file"
    )
    options = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with written_aside(sys.stderr, logging.INFO, "%(asctime)s %(levelname)s %(name)s: %(message)s"):
        return _serve(options.properties)


def _serve(properties: Path | None) -> int:
    # The JVM takes seconds to start Spark: time for this process to import its own modules.
    threading.Thread(
        target=importlib.import_module, args=("sparklog.driver.application",), daemon=True
    ).start()
    # No session: Spark SQL is not needed, and takes as long to load as the rest of Spark.
    SparkContext._ensure_initialized()  # without a JVM a SparkConf has none of spark-submit's settings
    java_virtual_machine: Any = SparkContext._jvm
    configuration = SparkConf().setAppName("sparklog")
    have_private_sockets(configuration, java_virtual_machine.java.lang.System.getProperty("java.io.tmpdir"))
    context = SparkContext.getOrCreate(configuration)
    stop_signal = StopSignal(context)
    try:
        cluster = _start(context, properties, stop_signal)
    except (sparklog.StartError, KafkaError, OSError, ValueError) as error:
        context.stop()
        if stop_signal.wait(0):
            logger.info("Stopped before the cluster was up")
            return 0
        print(f"sparklog can't start: {error}", file=sys.stderr)
        return 1
    with cluster:
        print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
        while not stop_signal.wait(POLL_S):
            # Nothing else reports the end of the JVM to this process, and clients have its address.
            if is_stopped(context):
                logger.error("Spark has ended under the cluster")
                return 1
            if cluster.failure is not None:
                logger.error("The controller has ended: %s", cluster.failure)
                return 1
        logger.info("Stopping")
    context.stop()
    return 0


def _start(context: SparkContext, properties: Path | None, stop_signal: StopSignal) -> sparklog.Cluster:
    """Start the cluster; a stop signal ends the wait for brokers, which may be a long one.

    Raises:
        StartError: It can't be started, or was stopped first.
        KafkaError: ConfigError for an unknown key or a malformed value.
        ValueError: A Spark property that must be a number is not one.
    """
    configuration = context.getConf()
    with ThreadPoolExecutor(1, thread_name_prefix="sparklog start") as starter:
        starting = starter.submit(
            sparklog.start,
            context,
            racks=int(configuration.get("spark.sparklog.racks") or 3),
            brokers_per_rack=int(configuration.get("spark.sparklog.brokers.per.rack") or 1),
            config=properties,
        )
        while not wait([starting], timeout=POLL_S).done:
            if stop_signal.wait(0):
                context.stop()
                break
        return starting.result()


if __name__ == "__main__":
    sys.exit(main())
