"""Turns a Spark application into a cluster: reads its configuration, checks it, starts it."""

import base64
import contextlib
import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.driver.cluster import SparkCluster
from sparklog.driver.controller.bootstrap_sockets import CannotListenError
from sparklog.driver.controller.initial_scram_users import InitialUsersError, read_initial_scram_users
from sparklog.driver.machine import driver_host
from sparklog.driver.machine.broker_ids import BrokerIds, counted_of, searched_broker_ids
from sparklog.driver.process.controller_process import ControllerProcess
from sparklog.driver.running_cluster import RunningCluster, Shape
from sparklog.driver.scaling import Membership
from sparklog.driver.spark import open_network, preflight
from sparklog.driver.spark.broker_jobs import BrokerJobs
from sparklog.driver.spark.calls import is_stopped
from sparklog.driver.spark.directory_search import ids_per_rack_of_brokers
from sparklog.driver.spark.dynamic_allocation import check_dynamic_allocation, held_executors
from sparklog.driver.spark.interpreter import use_drivers_interpreter
from sparklog.driver.spark.remote_store import check_remote_store
from sparklog.driver.spark.slots import BrokerSlots, broker_slots, is_local_mode
from sparklog.hosting import BrokerAssignment, StartError
from sparklog.node.config import BrokerConfig, read_properties
from sparklog.node.metadata.cluster_size import ClusterSize
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.client.config import parse_bootstrap_servers

_METADATA_DIRECTORY: Final = "metadata.log.dir"


def start_configuration(
    config: Mapping[str, object] | str | Path | None,
    log_directories: str | Path | Sequence[str | Path] | None,
) -> dict[str, str]:
    """Return the keys of a mapping or a properties file, with `log_directories` in place of its log.dirs.

    Values become texts, as Kafka's parsers expect. Directories become absolute: executors have temporary
    working directories of their own.

    A key whose value is None is left out.

    >>> start_configuration({"auto.create.topics.enable": True, "log.dirs": ["/a", "/b"]}, None)
    {'auto.create.topics.enable': 'true', 'log.dirs': '/a,/b'}

    Raises:
        StartError: A directory's name is empty or contains a comma.
        PropertiesError: The file is malformed.
    """
    given = read_properties(Path(config)) if isinstance(config, str | Path) else dict(config or {})
    texts = {key: _as_text(value) for key, value in given.items() if value is not None}
    for key in ("log.dirs", "log.dir"):
        value = given.get(key)
        if value is not None and value != "":  # Kafka treats an empty value as unset
            texts[key] = _joined(key, value.split(",") if isinstance(value, str) else _listed(value))
    if texts.get(_METADATA_DIRECTORY):
        texts[_METADATA_DIRECTORY] = str(Path(texts[_METADATA_DIRECTORY].strip()).absolute())
    if log_directories is not None:
        texts["log.dirs"] = _joined("log_directories", _listed(log_directories))
    return texts


def _joined(name: str, paths: Sequence[object]) -> str:
    """Return directories as one text, as in Kafka."""
    texts = [str(path).strip() for path in paths]
    if not all(texts) or not texts:
        raise StartError(
            f"{name} names no directory, or an empty name among several: name all, or leave it out for "
            "temporary logs"
        )
    for text in texts:
        if "," in text:
            raise StartError(
                f"{name}: '{text}' has a comma, which separates directories: give a list of paths without one"
            )
    return ",".join(str(Path(text).absolute()) for text in texts)


def _listed(value: object) -> Sequence[object]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _as_text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_as_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


_running: Final = RunningCluster()


def start(
    spark: SparkSession | SparkContext,
    *,
    racks: int = 3,
    brokers_per_rack: int = 1,
    log_directories: str | Path | Sequence[str | Path] | None = None,
    config: Mapping[str, object] | str | Path | None = None,
) -> SparkCluster:
    """Start a cluster and return it when every broker is unfenced; see `sparklog.start`."""
    context = preflight.checked_context(spark)
    preflight.check_counts(racks, brokers_per_rack)
    configuration = start_configuration(config, log_directories)
    try:
        # Set by Spark itself where no user has.
        host = context.getConf().get(driver_host.PROPERTY, "")
        configuration = driver_host.with_driver_host(configuration, host)
        shape = Shape(racks, brokers_per_rack, BrokerConfig.from_mapping(configuration, racks=racks))
        use_drivers_interpreter(spark, context)
        return _running.get_or_start(context, shape, lambda: _made(context, shape))
    except Exception as error:
        # Calls to a context that another thread stops fail in many ways.
        if isinstance(error, StartError | KafkaError) or not is_stopped(context):
            raise
        raise StartError("the Spark application has ended before its cluster was up") from error


def _made(context: SparkContext, shape: Shape) -> SparkCluster:
    # First, so that its interpreter imports the controller's modules while Spark is checked.
    controller = ControllerProcess.launch()
    try:
        with contextlib.ExitStack() as held:
            return _made_with(controller, context, shape, held)
    except BaseException:
        controller.stop()
        raise


def _made_with(
    controller: ControllerProcess, context: SparkContext, shape: Shape, held: contextlib.ExitStack
) -> SparkCluster:
    """Return a cluster that can be started once all that is `held` for it is released."""
    broker_config, brokers_per_rack = shape.config, shape.brokers_per_rack
    broker_count = shape.racks * brokers_per_rack
    broker_config.check_racks(shape.racks)
    check_dynamic_allocation(context, broker_count)
    open_network.check_listeners(broker_config)
    open_network.check_spark_authenticates(context, broker_config)
    open_network.check_barrier_tasks(context, broker_config)
    preflight.check_certificates(broker_config)
    preflight.check_size(context, broker_config)
    check_remote_store(broker_config)
    initial_scram_users = _initial_scram_users(broker_config)
    new_cluster_id = _new_cluster_id()
    temporary_directory = None
    directories = [Path(directory) for directory in broker_config.data_directories]
    if not directories:
        temporary_directory = Path(tempfile.gettempdir()) / f"sparklog-{new_cluster_id}"
        directories = [temporary_directory]
    slots = broker_slots(context)
    start_timeout_s = broker_config.sparklog_start_timeout_ms / 1_000
    if slots.allocated:
        job_group = f"sparklog-{new_cluster_id}-executors"
        held.enter_context(held_executors(slots, job_group, broker_count, start_timeout_s))
    else:
        preflight.check_slots(slots, broker_count, start_timeout_s)
    preflight.check_addresses(context, broker_config, broker_count)
    size = ClusterSize(shape.racks, brokers_per_rack)
    counted = brokers_per_rack
    if temporary_directory is None:
        held.close()  # the search needs the executors; idle ones stay for a while
        counted = _counted(slots, size, directories, new_cluster_id)
    ids = BrokerIds(counted, broker_config.sparklog_rack_names)
    racks = ids.racks(size)
    brokers = [(node_id, rack) for rack, node_ids in racks.items() for node_id in node_ids]
    with contextlib.ExitStack() as broken_off:
        if temporary_directory is not None or is_local_mode(context):
            preflight.check_directories(directories, temporary=temporary_directory is not None)
        if temporary_directory is not None:  # it belongs to this user
            broken_off.callback(shutil.rmtree, temporary_directory, ignore_errors=True)
        # Not in a log directory: its metadata log is never the only copy, and no later start looks for it.
        controller_directory = Path(tempfile.mkdtemp(prefix="sparklog-controller-"))
        broken_off.callback(shutil.rmtree, controller_directory, ignore_errors=True)
        broken_off.callback(controller.stop)
        secret = ApplicationSecret.new()
        try:
            controller.start(
                broker_config,
                controller_directory,
                secret=secret,
                expected_brokers=brokers,
                new_cluster_id=new_cluster_id,
                initial_scram_users=initial_scram_users,
            )
        except CannotListenError as error:
            raise StartError(_why_not(error)) from error
        owner_epoch = None
        if broker_config.remote_uri is not None:
            # Before any broker starts: two applications over one prefix would contradict each other.
            owner_epoch = controller.wait_until_owner(broker_config.sparklog_start_timeout_ms / 1_000)
        ((controller_host, controller_port),) = parse_bootstrap_servers(controller.bootstrap_servers)
        log_level = _broker_log_level(context)

        def assign(node_id: BrokerId, rack: str) -> BrokerAssignment:
            return BrokerAssignment(
                node_id=node_id,
                rack=rack,
                controller_host=controller_host,
                controller_port=controller_port,
                secret=secret,
                configuration=broker_config.raw,
                directories=_broker_directories(directories, node_id),
                temporary=temporary_directory is not None,
                log_level=log_level,
                ids_per_rack=counted,
                owner_epoch=owner_epoch,
            )

        # Spark starts the tasks of a barrier job together, and those of any other job as executors come.
        brokers_per_job = 1 if slots.allocated else brokers_per_rack
        cluster = SparkCluster(
            new_cluster_id,
            controller,
            slots,
            [
                [assign(node_id, rack) for node_id in node_ids[first : first + brokers_per_job]]
                for rack, node_ids in racks.items()
                for first in range(0, brokers_per_rack, brokers_per_job)
            ],
            [controller_directory] + ([temporary_directory] if temporary_directory is not None else []),
            broker_config,
            secret,
            Membership(ids, size, assign),
        )
        broken_off.pop_all()
    return cluster


def _counted(slots: BrokerSlots, size: ClusterSize, directories: Sequence[Path], new_cluster_id: str) -> int:
    """Return how many brokers of each rack have ids that are counted rack by rack.

    Raises:
        StartError: A host could not be searched for directories.
    """
    candidates = {each: _broker_directories(directories, each) for each in searched_broker_ids(size)}
    jobs = BrokerJobs(slots.spark_context)
    found = ids_per_rack_of_brokers(slots, jobs, f"sparklog-{new_cluster_id}-ids", candidates)
    return counted_of(found, size)


def _broker_directories(directories: Sequence[Path], node_id: BrokerId) -> tuple[str, ...]:
    return tuple(str(directory / f"broker-{node_id}") for directory in directories)


def _initial_scram_users(config: BrokerConfig) -> list[UserScramCredentialRecord]:
    """Return the users of the configured file.

    Raises:
        StartError: It can't be read, or is malformed.
    """
    path = config.sparklog_bootstrap_scram_file
    if path is None:
        return []
    try:
        return read_initial_scram_users(Path(path))
    except (InitialUsersError, OSError) as error:
        raise StartError(f"sparklog.bootstrap.scram.file: {error} (docs/security.md)") from error


def _broker_log_level(context: SparkContext) -> int:
    # In local mode brokers write to the application's own terminal or notebook, so its level counts.
    return logging.getLogger("sparklog").getEffectiveLevel() if is_local_mode(context) else logging.INFO


def _why_not(error: CannotListenError) -> str:
    return (
        f"the controller can't listen on controller.quorum.bootstrap.servers={error.address}: "
        f"{error.strerror or error}; name an address of the driver's host, and a free port or 0"
    )


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
