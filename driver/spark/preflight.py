"""The requirements of a start, checked before a job is submitted; errors name the remedy.

Spark itself would report most of them late or never: a barrier job without slots waits ten minutes, an
unwritable directory fails a task again and again.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.driver.spark.calls import is_stopped
from sparklog.driver.spark.executors import executors_to_come
from sparklog.driver.spark.hosts import executor_hosts, is_loopback
from sparklog.driver.spark.open_network import warn_of_readable_spark
from sparklog.driver.spark.slots import BrokerSlots, is_local_mode
from sparklog.hosting import LoopbackAddressError, NoWritableDirectoryError, StartError, TooFewTaskSlotsError
from sparklog.node.config import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.own_addresses import is_this_machine
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.storage.private_directories import (
    OthersDirectoryError,
    make_own_directory,
    make_private_directory,
)

logger = logging.getLogger(__name__)

SLOT_WAIT_S = 30.0
"""How long executors may take to register and tasks to end; Spark's own wait has the same default."""
_OTHERS_TASKS = "end the jobs of yours that run, or wait for them"
_OTHER_PARTS_BYTES = 32 << 10
"""The size of the other parts of the assignments of a rack's brokers, at most."""
_NOT_CORES = "(slots, not cores: a broker that waits takes no core)"


def checked_context(spark: object) -> SparkContext:
    """Return the context of the user's argument: the session's, or itself.

    Raises:
        StartError: It is neither, a Spark Connect session, or stopped.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise StartError(
            "this is a Spark Connect session, and the controller must run in its Spark driver, another "
            "process: call sparklog.start in the application that serves Connect; from here its topics are "
            "then read and written with format('sparklog')"
        )
    if not isinstance(spark, SparkSession | SparkContext):
        raise StartError(f"start takes a SparkSession or a SparkContext, not {spark!r}")
    context = spark if isinstance(spark, SparkContext) else spark.sparkContext
    if is_stopped(context):
        raise StartError(
            "this Spark session is stopped: make another one (SparkSession.builder.getOrCreate()), and give "
            "sparklog.start that"
        )
    return context


def check_counts(racks: int, brokers_per_rack: int) -> None:
    """Check the shape of the cluster.

    Raises:
        StartError: A count is not a positive whole number.
    """
    for name, count in (("racks", racks), ("brokers_per_rack", brokers_per_rack)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise StartError(f"{name} must be a whole number of at least 1, not {count!r}")


def check_directories(directories: Sequence[Path], *, temporary: bool = False) -> None:
    """Check that all `directories` are writable, creating missing ones.

    Only meaningful on the machine of the driver; elsewhere the brokers check their own. `temporary`
    directories have a parent that every user of the machine can write to, and must belong to this user.

    Raises:
        NoWritableDirectoryError: One can't be created or written, or is another user's.
    """
    make = make_own_directory if temporary else make_private_directory
    for directory in directories:
        try:
            make(directory)
        except OthersDirectoryError as error:
            raise NoWritableDirectoryError(str(error)) from error
        except OSError as error:
            raise NoWritableDirectoryError(
                f"log directory {directory} can't be made: {error.strerror}; name directories that this user "
                "can write with log_directories or log.dirs"
            ) from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise NoWritableDirectoryError(
                f"log directory {directory} is not writable: name directories that this user can write with "
                "log_directories or log.dirs"
            )


def check_slots(
    slots: BrokerSlots,
    broker_count: int,
    executors_start_within_s: float = 0,
    *,
    running: int = 0,
    is_asked: bool = False,
) -> None:
    """Check that all brokers fit besides the running tasks, waiting for executors and for tasks to end.

    `running` brokers of the cluster are among these tasks.

    Executors that have registered and unpack what Spark ships to them are waited for longer, up to
    `executors_start_within_s`; so are those that YARN and Kubernetes have not started yet of
    `spark.executor.instances`, and with `is_asked` those that Spark was asked for.

    Raises:
        TooFewTaskSlotsError: They don't.
    """
    if is_local_mode(slots.spark_context):
        _check_local_slots(slots, broker_count, running)
        return
    begun_s = time.monotonic()

    def starts() -> bool:
        in_time = time.monotonic() - begun_s < executors_start_within_s
        return in_time and (is_asked or slots.starting_executors() > 0 or executors_to_come(slots) > 0)

    if not _wait_until(lambda: slots.free_for_brokers() >= broker_count, starts):
        capacity, free, starting = (
            slots.broker_capacity(),
            slots.free_for_brokers(),
            slots.starting_executors(),
        )
        waited = f"{time.monotonic() - begun_s:.0f} s"
        needed = (
            f"{broker_count} brokers need {broker_count} executors with {slots.cores_per_broker} core(s) each"
        )
        if capacity >= broker_count and free + starting >= broker_count:
            raise TooFewTaskSlotsError(
                f"{needed}, and {free} are free of {capacity} after {waited}: {starting} have registered and "
                "still fetch or unpack what Spark ships to them. Set sparklog.start.timeout.ms higher, or "
                "install sparklog on the hosts instead of shipping spark.archives (docs/deploy.md)"
            )
        if capacity >= broker_count:
            raise TooFewTaskSlotsError(
                f"{needed}, and {free} are free of {capacity} after {waited}: {_OTHERS_TASKS}, "
                "or start more executors"
            )
        raise TooFewTaskSlotsError(
            f"{needed}, and {capacity} registered within {waited}: start more executors "
            "(spark.executor.instances, or more standalone workers), or fewer racks"
        )
    if slots.task_capacity() - broker_count * slots.cores_per_broker < 1:
        logger.warning(
            "The brokers take every core of this application; its own Spark jobs will not run until there is "
            "one more executor, or until brokers ask for a resource instead of cores (docs/deploy.md)"
        )


def _check_local_slots(slots: BrokerSlots, broker_count: int, running: int) -> None:
    master, capacity, wanted = slots.spark_context.master, slots.task_capacity(), broker_count + 1
    needed = f"{broker_count + running} brokers and one ordinary task need {wanted + running}"
    if capacity < wanted + running:
        raise TooFewTaskSlotsError(
            f"{master} has {capacity} task slots; {needed}: use master local[{wanted + running}] or more "
            f"{_NOT_CORES}"
        )
    if not _wait_until(lambda: slots.free_for_brokers() >= wanted):
        free = slots.free_for_brokers()
        raise TooFewTaskSlotsError(
            f"{master} has {capacity} task slots, of which {free} are free after {SLOT_WAIT_S:.0f} s; "
            f"{needed}: {_OTHERS_TASKS}, or use master local[{capacity + wanted - free}] or more {_NOT_CORES}"
        )


def _wait_until(is_so: Callable[[], bool], goes_on: Callable[[], bool] = lambda: False) -> bool:
    """Return whether the condition became true within `SLOT_WAIT_S`, or later while something goes on."""
    deadline_s = time.monotonic() + SLOT_WAIT_S
    while True:
        # Asked first: what ends now may have made the condition true.
        is_over = time.monotonic() > deadline_s and not goes_on()
        if is_so():
            return True
        if is_over:
            return False
        time.sleep(0.1)


def check_size(spark_context: SparkContext, config: BrokerConfig) -> None:
    """Check that the configuration fits into task closures.

    PySpark writes a long closure to a file, on the executors' hosts too: with its passwords, and the secret
    of driver and brokers.

    Raises:
        StartError: It is too long.
    """
    java_virtual_machine: Any = spark_context._jvm
    limit_bytes = (
        java_virtual_machine.PythonUtils.getBroadcastThreshold(spark_context._jsc) - _OTHER_PARTS_BYTES
    )
    size_bytes = sum(len(text.encode()) for item in config.raw.items() for text in item)
    if size_bytes > limit_bytes:
        longest = max(config.raw, key=lambda name: len(config.raw[name]))
        raise StartError(
            f"the configuration has {size_bytes} bytes; beyond {limit_bytes} Spark would write it to files, "
            f"secrets and all. Instead of what is in {longest} name a file that has it: "
            "ssl.keystore.location, ssl.truststore.location"
        )


def check_certificates(config: BrokerConfig) -> None:
    """Check the certificates of the TLS listeners, those for brokers alone included.

    A broker with an unreadable one would end, be restarted, and end again. A file that is missing on this
    host may exist on theirs.

    Raises:
        ConfigError: One is unusable.
    """
    secret = ApplicationSecret.new()  # any one: it authenticates nothing
    for endpoint in config.listeners:
        try:
            listener_tls(config, endpoint.name, endpoint.security_protocol, secret)
        except ConfigError as error:
            if not _is_of_a_missing_file(error):
                raise


def _is_of_a_missing_file(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, FileNotFoundError):
        error = error.__cause__
    return error is not None


def check_addresses(spark_context: SparkContext, config: BrokerConfig, broker_count: int) -> None:
    """Check that executors on other hosts do not need a loopback address, of the controller or of brokers.

    Possible only when the executors have registered.

    Raises:
        LoopbackAddressError: They do.
    """
    if is_local_mode(spark_context):
        return
    hosts = executor_hosts(spark_context, broker_count)
    elsewhere = sorted(host for host in hosts if not is_this_machine(host))
    if not elsewhere:
        return
    remedies = []
    controller = config.controller_quorum_bootstrap_servers[0].address
    if is_loopback(controller.host):
        driver_host = spark_context.getConf().get("spark.driver.host")
        remedies.append(
            f"controller.quorum.bootstrap.servers is {controller}: set it to the driver's host as the others "
            f"know it, {driver_host}:0 for instance"
        )
    # Clients of the first address get the addresses of its listener, followers of the inter-broker one.
    needed = {config.controller_quorum_bootstrap_servers[0].listener_name, config.inter_broker_listener}
    for endpoint in config.advertised_endpoints(config.listeners, host_name=elsewhere[0]):
        if endpoint.name in needed and is_loopback(endpoint.host):
            remedies.append(
                f"brokers would be advertised as {endpoint.name}://{endpoint.host}:{endpoint.port}: set"
                f" listeners "
                f"to {endpoint.name}://0.0.0.0:0 (every interface), or name hosts in advertised.listeners"
            )
    if remedies:
        raise LoopbackAddressError(
            f"executors run on other hosts ({', '.join(elsewhere)}), for which loopback is not this machine; "
            f"{'; '.join(remedies)} (docs/deploy.md)"
        )
    warn_of_readable_spark(spark_context, config)
