"""Gives a running cluster the size that its metadata log has: starts and ends brokers' jobs.

The size is a configuration of all brokers (`sparklog.racks`, `sparklog.brokers.per.rack`), which
`SparkCluster.scale`, the command sparklog-scale or any admin client sets. The controller refuses
impossible sizes and drains surplus brokers; a thread here follows its state (`machine.scaling`). So a
change goes on when the controller's process, or the whole application, is started again in its middle.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark import InheritableThread

from sparklog.driver.machine.broker_ids import BrokerIds
from sparklog.driver.machine.scaling import (
    EndJob,
    ReplaceJob,
    Retries,
    StartJob,
    Step,
    brokers_of,
    is_reached,
    next_steps,
    starting,
    without_jobs,
)
from sparklog.driver.process.controller_process import ControllerProcess
from sparklog.driver.process.messages import ControllerState
from sparklog.driver.spark.rack import Rack
from sparklog.hosting import BrokerAssignment, ScaleError, StartError
from sparklog.node.clocks import monotonic_ms
from sparklog.node.metadata.cluster_size import ClusterSize, SizeChange
from sparklog.protocol.types import BrokerEpoch, BrokerId

POLL_S: Final = 0.1
PROGRESS_S: Final = 2.0
ASK_AGAIN_MS: Final = 5_000
"""Time between two requests for executors while jobs wait for them."""
LEAVE_TIMEOUT_S: Final = 30.0
"""Time for the brokers of a job to shut down before their tasks are killed."""
RESIZE_TIMEOUT_S: Final = 15.0
STOP_WITHIN_S: Final = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Membership:
    ids: BrokerIds
    started: ClusterSize
    assign: Callable[[BrokerId, str], BrokerAssignment]
    """Returns the assignment of a broker of a rack."""


class ScalableJobs(Protocol):
    @property
    def racks(self) -> Sequence[Rack]: ...

    @property
    def refusal(self) -> str | None:
        """The last reason for which a broker ended, and which a retry would not change."""

    @property
    def refusals(self) -> int:
        """The number of brokers that have ended for such a reason."""

    @property
    def has_application(self) -> bool:
        """Whether Spark can still run jobs."""

    def ask_for_executors(self) -> None:
        """Ask the cluster manager for executors for all brokers, if it starts them on request."""

    def add_job(self, name: str, assignments: Sequence[BrokerAssignment]) -> None:
        """Submit a job of a rack's brokers, on the hosts of their directories as far as they are found."""

    def replacing_a_job(self) -> AbstractContextManager[None]:
        """Keep the cluster while a job ends that may be its only one, and another is started instead."""

    def remove_job(self, rack: Rack) -> None:
        """Forget a job that has ended for good."""


class Scaling:
    """The size of one cluster, from `start` to `stop`. For any thread."""

    def __init__(self, controller: ControllerProcess, jobs: ScalableJobs, membership: Membership) -> None:
        self._controller = controller
        self._jobs = jobs
        self._ids = membership.ids
        self._size = membership.started
        """The last known size: a controller that begins does not know it yet."""
        self._assign = membership.assign
        self._stopping = threading.Event()
        self._retries = Retries()
        self._failures: dict[str, str] = {}
        """The reason for which the last step of a job failed, by job."""
        self._former_epochs: dict[BrokerId, BrokerEpoch] = {}
        """The registrations that brokers had in jobs that were replaced."""
        self._dismissed_ms: dict[BrokerId, int] = {}
        """The time at which the controller last heard of a surplus broker that it has no job."""
        self._asked_for_executors_ms: int | None = None
        """The time of the last request for executors, while jobs wait for them."""
        self._asked_again = threading.Event()
        """Set to start jobs again that have ended, after a refusal for instance."""
        self._thread = InheritableThread(target=self._run, name="sparklog scaling", daemon=True)

    @property
    def size(self) -> ClusterSize:
        """The size that the cluster has or is about to have."""
        state = self._controller.state
        return self._size if state is None else self._wanted(state)

    def start(self) -> None:
        """Follow the controller's state from now on; a second call has no effect.

        Before the controller leads, the voters that it lacks are started: a cluster that was scaled has more
        than those of the application's arguments.
        """
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Follow no further change; jobs stay as they are."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(STOP_WITHIN_S)

    def missing(self, size: ClusterSize) -> int:
        """Return the number of brokers that have to be started for that size."""
        return len(brokers_of(self._ids.racks(size)) - brokers_of(self._brokers_of_jobs()))

    def scale(self, change: SizeChange, timeout_s: float | None) -> None:
        """Change the numbers that are not None, and wait until the cluster has them.

        Raises:
            ScaleError: it is refused, given up by another change, or not reached in time.
        """
        size = self.size.changed(*change)
        refusals = self._jobs.refusals
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        answer_by_s = time.monotonic() + RESIZE_TIMEOUT_S
        while not self._controller.resize(change):
            self._check_controller(size)
            if self._stopping.wait(POLL_S) or time.monotonic() > answer_by_s:
                raise ScaleError(f"the controller has not confirmed the size of {size}")
        self._asked_again.set()
        said_s = time.monotonic()
        while True:
            self._check_controller(size)
            state = self._controller.state
            if state is not None:
                wanted = self._wanted(state)
                # The state came before the confirmation. Another call may change the other number.
                if not change.is_in(wanted):
                    raise ScaleError(f"the size of {size} was given up for that of {wanted}")
                if self._is_reached(state):
                    logger.info("The cluster has its size of %s", size)
                    return
            if self._jobs.refusals > refusals:
                raise ScaleError(f"the size of {size} can't be reached: {self._jobs.refusal}")
            if self._stopping.wait(POLL_S):
                raise ScaleError(f"the cluster was stopped before it had its size of {size}")
            now_s = time.monotonic()
            if now_s - said_s >= PROGRESS_S:
                said_s = now_s
                logger.info("The cluster gets its size of %s: %s", size, self._progress(state))
            if deadline_s is not None and now_s > deadline_s:
                raise ScaleError(
                    f"the size of {size} was not reached within {timeout_s:g} s, and the change goes on: "
                    f"{self._progress(state)}. Give it up by scaling to the former size"
                )

    def _check_controller(self, size: ClusterSize) -> None:
        if (failure := self._controller.failure) is not None:
            raise ScaleError(f"the controller ended before the cluster had its size of {size}: {failure}")

    def _wanted(self, state: ControllerState) -> ClusterSize:
        self._size = self._size.changed(state.racks, state.brokers_per_rack)
        return self._size

    def _brokers_of_jobs(self) -> dict[str, list[BrokerId]]:
        return {rack.name: [each.node_id for each in rack.assignments] for rack in self._jobs.racks}

    def _is_reached(self, state: ControllerState) -> bool:
        return state.serves and is_reached(
            self._brokers_of_jobs(),
            self._ids.racks(self._wanted(state)),
            surplus=[each for each, _ in state.surplus],
            unfenced=state.unfenced,
        )

    def _progress(self, state: ControllerState | None) -> str:
        if state is None:
            return "its controller is started again"
        parts = [f"broker {each} leaves, {held} replicas are left on it" for each, held in state.surplus]
        wanted = brokers_of(self._ids.racks(self._wanted(state)))
        for rack in self._jobs.racks:
            for assignment in rack.assignments:
                if assignment.node_id in wanted and assignment.node_id not in state.unfenced:
                    parts.append(f"broker {assignment.node_id} of {rack.name} is missing: {rack.state}")
        parts += [f"a change of {job} failed: {cause}" for job, cause in tuple(self._failures.items())]
        return "; ".join(parts) or "brokers hear of each other"

    def _forget_ended_jobs(self) -> None:
        for rack in self._jobs.racks:
            if rack.join(0):
                self._jobs.remove_job(rack)

    def _run(self) -> None:
        followed: ClusterSize | None = None
        while not self._stopping.wait(POLL_S):
            self._ask_for_executors()
            state = self._controller.state
            if state is None:
                continue
            if state.cluster_id is None:
                step = self._retries.due(self._missing_voters(state), monotonic_ms())
                if step is not None and not self._tried(step):
                    return
                continue
            if state.racks is None:  # nothing is committed yet
                continue
            wanted = self._wanted(state)
            if self._asked_again.is_set() or wanted != followed:
                followed = wanted
                self._asked_again.clear()
                self._retries = Retries()
                self._failures.clear()
                self._forget_ended_jobs()
            self._dismiss_brokers_without_jobs(state)
            step = self._retries.due(self._possible_steps(state), monotonic_ms())
            if step is not None and not self._tried(step):
                return

    def _dismiss_brokers_without_jobs(self, state: ControllerState) -> None:
        now_ms = monotonic_ms()
        found = without_jobs(self._brokers_of_jobs(), surplus=dict(state.surplus), unfenced=state.unfenced)
        self._dismissed_ms = {each: at_ms for each, at_ms in self._dismissed_ms.items() if each in found}
        for broker_id in found:
            dismissed_ms = self._dismissed_ms.get(broker_id)
            # Again now and then: the controller may have been another process.
            if dismissed_ms is None or now_ms - dismissed_ms >= ASK_AGAIN_MS:
                self._dismissed_ms[broker_id] = now_ms
                self._controller.broker_leaves(broker_id, 0, "it has no job", is_lost=False)

    def _missing_voters(self, state: ControllerState) -> list[Step]:
        jobs = self._brokers_of_jobs()
        missing = self._by_rack(each for each in state.missing_voters if each not in brokers_of(jobs))
        return [starting(rack, brokers, jobs) for rack, brokers in missing.items()]

    def _by_rack(self, brokers: Iterable[BrokerId]) -> dict[str, list[BrokerId]]:
        by_rack: dict[str, list[BrokerId]] = {}
        for each in brokers:
            by_rack.setdefault(self._ids.rack_of(each), []).append(each)
        return by_rack

    def _ask_for_executors(self) -> None:
        if not any(rack.waits_for_executors for rack in self._jobs.racks):
            self._asked_for_executors_ms = None
            return
        asked_ms, now_ms = self._asked_for_executors_ms, monotonic_ms()
        if asked_ms is None or now_ms - asked_ms >= ASK_AGAIN_MS:
            self._asked_for_executors_ms = now_ms
            self._jobs.ask_for_executors()

    def _possible_steps(self, state: ControllerState) -> list[Step]:
        epochs = dict(state.broker_epochs)
        return next_steps(
            self._brokers_of_jobs(),
            self._ids.racks(self._wanted(state)),
            surplus=[each for each, _ in state.surplus],
            drained=state.drained,
            may_restart=state.may_restart,
            registered=state.registered,
            unfenced=state.unfenced,
            restarting=[
                each for each, former in self._former_epochs.items() if epochs.get(each, former) <= former
            ],
            returning=self._by_rack(
                each for each, held in state.surplus if held and each not in state.unfenced
            ),
        )

    def _tried(self, step: Step) -> bool:
        """Carry out a step, or note its failure; return False if no other one can succeed either."""
        try:
            self._carry_out(step)
        except Exception as error:  # in many shapes, of Spark or its JVM; each step is tried again
            if self._stopping.is_set() or not self._jobs.has_application:
                if not self._stopping.is_set():
                    logger.info("The cluster is no longer scaled: %s", error)
                return False
            self._retries.failed(step, monotonic_ms())
            self._failures[step.name] = str(error)
            is_expected = isinstance(error, StartError)
            logger.warning("A change of %s failed: %s", step.name, error, exc_info=not is_expected)
        else:
            self._retries.succeeded(step)
            self._failures.pop(step.name, None)
        return True

    def _carry_out(self, step: Step) -> None:
        match step:
            case StartJob(name, rack, brokers):
                self._start_job(name, [self._assign(each, rack) for each in brokers])
            case EndJob(name):
                self._end_job(self._job(name))
            case ReplaceJob(name, brokers):
                job = self._job(name)
                staying = [each for each in job.assignments if each.node_id in brokers]
                if (state := self._controller.state) is not None:
                    self._former_epochs |= {
                        each: epoch for each, epoch in state.broker_epochs if each in brokers
                    }
                with self._jobs.replacing_a_job():
                    self._end_job(job)
                    self._start_job(name, staying)
        self._controller.expect_brokers(
            [(each.node_id, each.rack) for rack in self._jobs.racks for each in rack.assignments]
        )

    def _job(self, name: str) -> Rack:
        return next(rack for rack in self._jobs.racks if rack.name == name)

    def _start_job(self, name: str, assignments: list[BrokerAssignment]) -> None:
        brokers = ", ".join(str(each.node_id) for each in assignments)
        logger.info("%s gets broker %s", assignments[0].rack, brokers)
        self._jobs.add_job(name, assignments)

    def _end_job(self, rack: Rack) -> None:
        logger.info("The brokers of %s leave the cluster", rack.name)
        rack.expect_end()
        asked: dict[BrokerId, BrokerEpoch | None] = {}
        self._ask_to_leave(rack, asked)
        deadline_s = time.monotonic() + LEAVE_TIMEOUT_S
        while not rack.join(POLL_S):
            self._ask_to_leave(rack, asked)
            if self._stopping.is_set():
                return
            if time.monotonic() > deadline_s:
                logger.warning(
                    "%s did not exit within %.0f s; its tasks are killed", rack.name, LEAVE_TIMEOUT_S
                )
                rack.cancel()
                deadline_s = time.monotonic() + LEAVE_TIMEOUT_S
        self._jobs.remove_job(rack)

    def _ask_to_leave(self, rack: Rack, asked: dict[BrokerId, BrokerEpoch | None]) -> None:
        """Shut down the brokers of a job that have registered since: one that starts cannot be asked."""
        state = self._controller.state
        epochs = {} if state is None else dict(state.broker_epochs)
        for assignment in rack.assignments:
            broker_id = assignment.node_id
            if broker_id not in asked or epochs.get(broker_id, asked[broker_id]) != asked[broker_id]:
                asked[broker_id] = epochs.get(broker_id)
                self._controller.broker_leaves(
                    broker_id, rack.attempt, "the cluster becomes smaller", is_lost=False
                )
