# Long because one class owns the order in which the parts of a cluster begin and end.
"""A running cluster: one controller, its racks, and the order of their start and stop.

Start: the controller, then the racks' jobs, then the wait until every broker is unfenced. Stop: with a tier
all that the cluster has is copied to the object store first; the controller answers the brokers' heartbeats
with should_shut_down, each broker flushes and exits, the jobs end, the controller ends, temporary
directories are removed. A start that fails half-way stops in the same way, and so does an application whose
Spark context is stopped first.
"""

import atexit
import contextlib
import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import thread as pools
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from sparklog.driver.monitoring.spark_metrics import SparkMetrics
from sparklog.driver.process.controller_process import ControllerProcess
from sparklog.driver.scaling import Membership, Scaling
from sparklog.driver.spark import preflight
from sparklog.driver.spark.broker_jobs import BrokerJobs
from sparklog.driver.spark.calls import JVM_GONE, is_stopped
from sparklog.driver.spark.context_guard import ContextGuard
from sparklog.driver.spark.decommission import DecommissionWatch
from sparklog.driver.spark.directory_search import find_directories, find_directories_beside_brokers
from sparklog.driver.spark.dynamic_allocation import FirstLoss, check_dynamic_allocation
from sparklog.driver.spark.executors import ExecutorRequests
from sparklog.driver.spark.interpreter import wrong_interpreter
from sparklog.driver.spark.placement import Placement
from sparklog.driver.spark.rack import Rack
from sparklog.driver.spark.slots import BrokerSlots
from sparklog.driver.ui.tab_thread import TabThread
from sparklog.hosting import BrokerAssignment, BrokerRefusedError, ScaleError, StartError
from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.session_access import session_access
from sparklog.node.metadata.cluster_size import ClusterSize, SizeChange
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.storage import DirectoryLockedError, LogDirectory
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.dataframe import announce

logger = logging.getLogger(__name__)


class _Stoppable(Protocol):
    def stop(self) -> None: ...


_running: Final[set[_Stoppable]] = set()
_registered: Final = threading.Event()


def stop_at_exit(cluster: _Stoppable) -> None:
    """Stop the cluster when the interpreter ends.

    `atexit` comes too late: by then concurrent.futures has ended the threads of the controller's file work. A
    function of `threading` runs before that, when the main thread has ended. The user's threads that outlive
    the main thread may need the cluster, so it is then left to `atexit` all the same.
    """
    _running.add(cluster)
    if not _registered.is_set():
        _registered.set()
        atexit.register(_stop_all)
        threading._register_atexit(_stop_all_unless_used)  # type: ignore[attr-defined]


def forget_at_exit(cluster: _Stoppable) -> None:
    _running.discard(cluster)


def _stop_all_unless_used() -> None:
    pooled = pools._threads_queues
    ends = (threading.main_thread(), threading.current_thread())
    if all(each.daemon or each in ends or each in pooled for each in threading.enumerate()):
        _stop_all()


def _stop_all() -> None:
    for cluster in tuple(_running):
        cluster.stop()


FAILURES_BEFORE_START_ALLOWED = 5
"""A cluster whose jobs failed this often before it was up will not come up."""
LEAVE_TIMEOUT_S = 20.0
"""Time for brokers to flush and exit before Spark kills their tasks."""
COPY_POLL_S = 0.2
COPY_MARGIN_S = 15.0
"""How long the controller may be late with the end of an orderly stop, whose bound it keeps itself."""
KILL_TIMEOUT_S = 10.0
"""Time for Spark to kill the tasks before the cluster is abandoned."""


LOCK_POLL_S = 0.05


class SparkCluster:
    """The cluster of one application; `start` it once, `stop` it once."""

    def __init__(
        self,
        name: str,
        controller: ControllerProcess,
        slots: BrokerSlots,
        racks: Sequence[Sequence[BrokerAssignment]],
        temporary_directories: Sequence[Path],
        config: BrokerConfig,
        secret: ApplicationSecret,
        membership: Membership,
    ) -> None:
        """Take over a controller that listens; `name`, unique to this cluster, is for Spark's jobs."""
        self._controller = controller
        self._config = config
        self._secret = secret
        self._broker_count = sum(len(assignments) for assignments in racks)
        self._temporary_directories = tuple(temporary_directories)
        self._lock = threading.Lock()
        self._stopping = threading.RLock()
        self._stopped = False
        """Whether `stop` was called; it may not have done anything yet."""
        self._ended = False
        self._has_served = False
        self._copying_begun = False
        self._starts = 1
        """The number of `sparklog.start` calls that returned it and whose `with` block has not ended."""
        self._announcement = contextlib.ExitStack()
        """Announces the cluster to sessions, and its end when it begins to stop."""
        self._failures = 0
        """The number of failed jobs; while voters are missing, the largest number in a row of one rack."""
        self._last_failure: str | None = None
        self._refusal: str | None = None
        self._refusals = 0
        jobs = BrokerJobs(slots.spark_context)
        self._slots = slots
        self._jobs = jobs
        self._job_group = f"sparklog-{name}"
        self._context = slots.spark_context
        names = job_names(racks)
        self._placement = Placement(
            slots,
            {name: [each.node_id for each in job] for name, job in zip(names, racks, strict=True)},
            {name: self._group_of(name) for name in names},
            {each.node_id: each.rack for job in racks for each in job},
        )
        self._first_loss = FirstLoss(slots.spark_context) if slots.allocated else None
        self._context_guard = ContextGuard(slots.spark_context, jobs, self.stop)
        self._racks = [self._rack(name, assignments) for name, assignments in zip(names, racks, strict=True)]
        self._racks_running = len(self._racks)
        self._former_attempts: dict[BrokerId, int] = {}
        """The last attempts of jobs that have ended for good, by their brokers."""
        self._decommissions = DecommissionWatch(slots.spark_context, self._racks, self._rack_decommissioned)
        self._tab = TabThread(slots.spark_context, controller, self._racks)
        self._requests = ExecutorRequests(slots, self._broker_count)
        self._scaling = Scaling(controller, self, membership)
        self._metrics = SparkMetrics(slots.spark_context, controller.metrics, self._restarts)
        controller.rack_attempts = self._attempts

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the controller's listener, independent of the brokers' hosts."""
        return self._controller.bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id, 22 characters; known once the cluster has started."""
        cluster_id = self._controller.cluster_id
        assert cluster_id is not None, "the cluster has not started"
        return cluster_id

    @property
    def failure(self) -> BaseException | None:
        return self._controller.failure

    @property
    def size(self) -> ClusterSize:
        """The size that the cluster has or is about to have."""
        return self._scaling.size

    def scale(
        self, *, racks: int | None = None, brokers_per_rack: int | None = None, timeout_s: float | None = None
    ) -> None:
        """Change the size of the running cluster; see `sparklog.Cluster.scale`."""
        if racks is None and brokers_per_rack is None:
            raise ScaleError("name the new number of racks, of brokers_per_rack, or both")
        change = SizeChange(racks, brokers_per_rack)
        size = self.size.changed(*change)
        preflight.check_counts(*size)
        missing = self._scaling.missing(size)
        if missing:
            self._config.check_racks(size.racks)
            check_dynamic_allocation(self._context, size.brokers)
        # Under dynamic allocation a job that waits is what makes Spark start an executor.
        if missing and not self._slots.allocated:
            running = self._brokers_of_jobs
            is_asked = missing > self._slots.free_for_brokers() and self._requests.ask(running + missing)
            start_timeout_s = self._config.sparklog_start_timeout_ms / 1_000
            preflight.check_slots(self._slots, missing, start_timeout_s, running=running, is_asked=is_asked)
            preflight.check_addresses(self._context, self._config, missing)
        self._scaling.scale(change, timeout_s)

    @property
    def refusal(self) -> str | None:
        """The last reason for which a broker ended, and which a retry would not change."""
        return self._refusal

    @property
    def refusals(self) -> int:
        """The number of brokers that have ended for such a reason."""
        return self._refusals

    @property
    def has_application(self) -> bool:
        """Whether Spark can still run jobs."""
        return not is_stopped(self._context)

    @property
    def racks(self) -> Sequence[Rack]:
        return tuple(self._racks)

    def add_job(self, name: str, assignments: Sequence[BrokerAssignment]) -> None:
        """Submit another job of a rack's brokers, on the hosts of their directories.

        Those of brokers that have run in this application are known. Under dynamic allocation each broker
        gets a job, as at the start.
        """
        unknown = [
            each for each in assignments if not each.temporary and each.node_id not in self._former_attempts
        ]
        if unknown:
            job_group = f"{self._job_group}-directories"
            self._placement.set_homes(
                find_directories_beside_brokers(self._slots, self._jobs, job_group, unknown)
            )
        if self._slots.allocated and len(assignments) > 1:
            for each in assignments:
                self._add_job(f"{each.rack}-broker-{each.node_id}", [each])
        else:
            self._add_job(name, assignments)

    def ask_for_executors(self) -> None:
        """Ask the cluster manager for executors for all brokers, if it starts them on request."""
        with contextlib.suppress(*JVM_GONE):
            self._requests.ask(self._brokers_of_jobs)

    @property
    def _brokers_of_jobs(self) -> int:
        return sum(len(rack.assignments) for rack in self.racks)

    def _add_job(self, name: str, assignments: Sequence[BrokerAssignment]) -> None:
        group = self._group_of(name)
        self._placement.add(name, assignments[0].rack, [each.node_id for each in assignments], group)
        if self._first_loss is not None:
            self._first_loss.watch(group)
        rack = self._rack(name, assignments)
        # Attempts go on, so that no instruction about a broker's former job is repeated to this one.
        rack.attempt = max(self._former_attempts.get(each.node_id, 0) for each in assignments)
        with self._lock:
            if self._stopped:
                return
            self._racks.append(rack)
            self._racks_running += 1
        rack.start()

    @contextlib.contextmanager
    def replacing_a_job(self) -> Iterator[None]:
        """Keep the cluster while a job ends that may be its only one, and another is started instead."""
        with self._lock:
            self._racks_running += 1
        try:
            yield
        finally:
            with self._lock:
                self._racks_running -= 1
                has_none = self._racks_running == 0
            # Without a job because it could not be started yet, the cluster goes on.
            if has_none and is_stopped(self._context):
                self._left_behind()

    def remove_job(self, rack: Rack) -> None:
        """Forget a job that has ended for good."""
        self._former_attempts |= {each.node_id: rack.attempt for each in rack.assignments}
        self._racks.remove(rack)
        self._placement.remove(rack.name)

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def share(self) -> None:
        """Count another `sparklog.start` of this cluster: the first `with` block to end does not stop it."""
        with self._lock:
            self._starts += 1

    def start(self) -> None:
        """Submit the racks' jobs and return when every broker is unfenced.

        Over the directories of an earlier application it waits, for as long as it takes, for a majority of
        the metadata log's voters; the log names the missing directories.

        Raises:
            BrokerRefusedError: A broker ended for a reason that a retry would not change.
            StartError: The brokers did not come up; those that did are stopped again.
        """
        stop_at_exit(self)
        try:
            self._context_guard.install()
            self._placement.set_hosts_of_racks(self._config.hosts_of_racks)
            self._find_homes([each for rack in self._racks for each in rack.assignments])
            if self._first_loss is not None:
                self._first_loss.start()
                for rack in self._racks:
                    self._first_loss.watch(rack.job_group)
            for rack in self._racks:
                rack.start()
            self._decommissions.start()
            self._wait_until_unfenced()
            self._has_served = True
            self._scaling.start()
            access = session_access(self._config, self._secret)
            uri = self._config.remote_uri
            store = None if uri is None else StoreLocation.of(uri, self._config.remote_options)
            self._announcement.enter_context(announce(self._context, self.bootstrap_servers, access, store))
            self._tab.start()
            self._metrics.start()
            logger.info("Cluster %s serves at %s", self.cluster_id, self.bootstrap_servers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut down every broker after a flush, then the controller; return when that is done.

        With a tier all records, committed offsets and the metadata are copied to the object store first, for
        sparklog.remote.stop.timeout.ms at most; the log has the progress, and what is not copied.

        Idempotent, from any thread; the next call continues an interrupted one (by a second Ctrl-C for
        instance), without further copies. Apart from these it returns after `LEAVE_TIMEOUT_S` and
        `KILL_TIMEOUT_S` at the latest, independent of the number of racks and of brokers that do not exit.
        """
        with self._lock:
            self._stopped = True
        with self._stopping:
            if self._ended:
                return
            try:
                self._announcement.close()
            except Exception:  # the brokers must stop all the same
                logger.exception("The end of the cluster could not be announced to sessions")
            self._scaling.stop()
            self._decommissions.stop()
            self._tab.stop()
            self._metrics.stop()
            self._copy_all()
            self._end_racks()
            if self._first_loss is not None:
                self._first_loss.stop()
            self._controller.stop()
            for directory in self._temporary_directories:
                _wait_for_brokers(directory)
                shutil.rmtree(directory, ignore_errors=True)
            self._context_guard.remove()
            forget_at_exit(self)
            self._ended = True

    def _group_of(self, job: str) -> str:
        return f"{self._job_group}-{job}"

    def _rack(self, name: str, assignments: Sequence[BrokerAssignment]) -> Rack:
        return Rack(
            self._slots,
            assignments,
            name=name,
            placement=self._placement,
            jobs=self._jobs,
            on_failed=self._rack_failed,
            on_refused=self._broker_refused,
            on_ended=self._rack_ended,
        )

    def _find_homes(self, assignments: Sequence[BrokerAssignment]) -> None:
        kept = [each for each in assignments if not each.temporary]
        if kept:
            job_group = f"{self._job_group}-directories"
            self._placement.set_homes(find_directories(self._slots, self._jobs, job_group, kept))

    def _copy_all(self) -> None:
        """Copy all that the cluster has to the object store, while its brokers still run."""
        if self._config.remote_uri is None or not self._has_served or self._racks_running == 0:
            return
        if self._copying_begun:
            logger.warning("The copies to %s were interrupted; brokers leave now", self._config.remote_uri)
            return
        self._copying_begun = True
        timeout_ms = self._config.sparklog_remote_stop_timeout_ms
        self._controller.stop_in_order(timeout_ms)
        deadline_s = time.monotonic() + timeout_ms / 1_000 + COPY_MARGIN_S
        while not self._controller.wait_until_copied(COPY_POLL_S):
            if self._racks_running == 0:
                logger.error(
                    "Brokers ended before all was copied to %s: records that were acknowledged in the last "
                    "%.0f s may be on their disks alone",
                    self._config.remote_uri,
                    self._config.sparklog_remote_max_lag_ms / 1_000,
                )
                return
            if time.monotonic() > deadline_s:
                logger.error("The controller has not ended the copies to %s in time", self._config.remote_uri)
                return

    def _end_racks(self) -> None:
        for rack in self._racks:
            rack.expect_end()
        if self._controller.cluster_id is None:
            # Without a leader brokers get no answer to heartbeats, and have nothing to write.
            self._controller.stop()
            for rack in self._racks:
                rack.cancel()
        self._controller.shut_down_brokers()
        if late := _not_ended(self._racks, LEAVE_TIMEOUT_S):
            logger.warning(
                "%s did not exit within %.0f s; their tasks are killed", _names(late), LEAVE_TIMEOUT_S
            )
            for rack in late:
                rack.cancel()
            if late := _not_ended(late, KILL_TIMEOUT_S):
                logger.error("Spark did not end the jobs of %s within %.0f s", _names(late), KILL_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._starts -= 1
            is_last = self._starts <= 0
        if is_last:
            self.stop()

    def _wait_until_unfenced(self) -> None:
        timeout_s = self._config.sparklog_start_timeout_ms / 1000
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                self._controller.wait_until_unfenced(self._broker_count, timeout_s=0.2)
                return
            except TimeoutError as error:
                # First: once every rack has ended the cluster stops itself.
                if self._refusal is not None:
                    raise BrokerRefusedError(self._refusal) from None
                if self._stopped:
                    raise StartError(f"the cluster was stopped before it was up: {error}") from None
                if self._controller.lacks_voters:  # possibly for days, in which executors come and go
                    self._scaling.start()
                    in_a_row = max(rack.failures for rack in self._racks)
                    self._failures = in_a_row if in_a_row >= FAILURES_BEFORE_START_ALLOWED else 0
                if remedy := wrong_interpreter(self._context, self._last_failure or ""):
                    raise StartError(remedy) from None
                if self._failures >= FAILURES_BEFORE_START_ALLOWED:
                    raise StartError(
                        f"the brokers' jobs fail: {self._last_failure} (the executors' stderr, linked from "
                        "the Spark UI, says more)"
                    ) from None
                if time.monotonic() > deadline_s and not self._controller.lacks_voters:
                    missing = "".join(f"; {each}" for each in self._missing_brokers())
                    raise StartError(
                        f"the brokers did not come up within {timeout_s:g} s (sparklog.start.timeout.ms): "
                        f"{error}{missing}. The executors' stderr, linked from the Spark UI, says more"
                    ) from None

    def _missing_brokers(self) -> Iterator[str]:
        """Yield each broker that is not unfenced, and the state of its job."""
        for rack in self._racks:
            for assignment in rack.assignments:
                if assignment.node_id not in self._controller.unfenced_brokers:
                    yield f"broker {assignment.node_id} of {rack.name} is missing: {rack.state}"

    def _rack_failed(self, rack: Rack, cause: str) -> None:
        self._failures += 1
        self._last_failure = cause
        for assignment in rack.assignments:
            # All of them: Spark kills the tasks of those that still run in a moment.
            self._controller.broker_leaves(
                assignment.node_id, rack.attempt, f"the job of {rack.name} has failed", is_lost=True
            )

    def _rack_decommissioned(self, rack: Rack, executor: str) -> None:
        logger.warning("Spark decommissions executor %s: %s moves to another one", executor, rack.name)
        self._placement.leave_hosts(rack.name)
        # All of them, since the rack's job ends with the first of its brokers.
        for assignment in rack.assignments:
            self._controller.broker_leaves(
                assignment.node_id, rack.attempt, f"executor {executor} is decommissioned", is_lost=False
            )

    def _restarts(self) -> Mapping[BrokerId, int]:
        return {broker_id: max(0, attempt - 1) for broker_id, attempt in self._attempts().items()}

    def _attempts(self) -> Mapping[BrokerId, int]:
        return {assignment.node_id: rack.attempt for rack in self._racks for assignment in rack.assignments}

    def _broker_refused(self, refusal: str) -> None:
        logger.error("Refused: %s", refusal)
        self._refusal = refusal
        with self._lock:
            self._refusals += 1

    def _rack_ended(self) -> None:
        with self._lock:
            self._racks_running -= 1
            has_none = self._racks_running == 0
        if has_none:
            self._left_behind()

    def _left_behind(self) -> None:
        """Stop a cluster whose brokers have ended first."""
        if self._stopped:
            return
        logger.warning(
            "%s before the cluster was stopped; stopping the controller",
            "The Spark application ended" if self._refusal is None else "The last rack was refused",
        )
        # Not on this thread: stop() joins it.
        threading.Thread(target=self.stop, name="sparklog stop").start()


def job_names(jobs: Sequence[Sequence[BrokerAssignment]]) -> list[str]:
    """Return a name for each job: that of its rack, with its first broker if the rack has several jobs."""
    jobs_of_rack = Counter(job[0].rack for job in jobs)
    return [
        job[0].rack if jobs_of_rack[job[0].rack] == 1 else f"{job[0].rack}-broker-{job[0].node_id}"
        for job in jobs
    ]


def _wait_for_brokers(directory: Path) -> None:
    """Wait until no process of this host locks a broker's directory: a job may end before its broker has."""
    deadline_s = time.monotonic() + KILL_TIMEOUT_S
    for path in directory.glob("broker-*"):
        while time.monotonic() < deadline_s:
            try:
                LogDirectory.open(path).close()
                break
            except DirectoryLockedError:
                time.sleep(LOCK_POLL_S)
            except KafkaError:  # its broker is removing it
                break


def _not_ended(racks: Sequence[Rack], timeout_s: float) -> list[Rack]:
    deadline_s = time.monotonic() + timeout_s
    return [rack for rack in racks if not rack.join(max(0.0, deadline_s - time.monotonic()))]


def _names(racks: Sequence[Rack]) -> str:
    return ", ".join(rack.name for rack in racks)
