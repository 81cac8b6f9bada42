# Long because the driver has one handle of the controller's process: its questions, and the process's life.
"""The driver's handle of the controller: a process that is started, queried, stopped, and restarted.

A thread here reads the process's messages and follows `machine.supervision`. It needs the interpreter only
when there is something to read, so a busy interpreter does not stop the controller.

The driver binds the listening sockets, and each process gets them: while there is no process, connections
wait in the kernel's queue for the next one instead of being refused, and no other program can take the port.
"""

import contextlib
import itertools
import logging
import os
import shutil
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparklog.driver.controller.bootstrap_sockets import bootstrap_sockets
from sparklog.driver.process.errors import error_of
from sparklog.driver.process.launch import Child
from sparklog.driver.process.machine.supervision import (
    Effect,
    GiveUp,
    KillChild,
    RestartAt,
    StartChild,
    Supervision,
    Tell,
)
from sparklog.driver.process.messages import (
    AskMetrics,
    AskPage,
    AskTab,
    BeginTab,
    ControllerState,
    Failed,
    FromChild,
    FromDriver,
    LogLine,
    MetricsMade,
    PageMade,
    Resize,
    Resized,
    StartController,
    TabMade,
)
from sparklog.driver.ui.tab_source import DriverEvent, MadePage, MadeTab, Observed
from sparklog.hosting import ScaleError, StartError
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig, HostPort
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.node.metadata.framing import encode_record
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId

ANSWER_WITHIN_S: Final = 1.5
"""The time-out for a page or metrics."""
STOP_TIMEOUT_S: Final = 10.0
"""How long the controller may take to close before its process is killed."""

MAX_QUESTIONS: Final = 4
"""Queries without an answer, at most."""
MAX_EVENTS: Final = 20
"""Ends of processes that the tab has not shown yet, at most."""

logger = logging.getLogger(__name__)


class ControllerProcess:
    """The controller of one cluster. For any thread.

    Order: `launch`, `start`, any other method, `stop`; `stop` may be called at any time, and twice.
    """

    def __init__(self, rack_attempts: Callable[[], Mapping[BrokerId, int]] = dict) -> None:
        self.rack_attempts = rack_attempts
        """The current attempts of the racks' jobs, by broker."""
        self._changed = threading.Condition()
        self._machine = Supervision()
        self._child: Child | None = None
        self._start: StartController | None = None
        self._directory: Path | None = None
        self._addresses: tuple[HostPort, ...] = ()
        self._sockets: list[socket.socket] = []
        self._state: ControllerState | None = None
        """The last one of the current process."""
        self.cluster_id: str | None = None
        """The id of the cluster; None before an election is won."""
        self.failure: BaseException | None = None
        """The error that ended the controller, None while it can go on."""
        self._restart_events: list[DriverEvent] = []
        self._questions: dict[int, Future[FromChild | None]] = {}
        self._numbers = itertools.count(1)
        self._tab_begun = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparklog controller", daemon=True)
        _living.add(self)

    @classmethod
    def launch(cls) -> "ControllerProcess":
        """Start the process, which imports its modules while the driver prepares the start."""
        launched = cls()
        launched._thread.start()
        return launched

    def start(
        self,
        config: BrokerConfig,
        directory: Path,
        *,
        secret: ApplicationSecret,
        expected_brokers: Sequence[tuple[BrokerId, str]],
        new_cluster_id: str,
        initial_scram_users: Sequence[UserScramCredentialRecord] = (),
    ) -> None:
        """Listen, and serve the cluster of the brokers' directories, or a new one.

        Returns at once: brokers that connect before the process listens wait in the kernel's queue.
        `wait_until_unfenced` raises a failure. `directory` is empty, and has no other user.

        Raises:
            CannotListenError: an address cannot be listened on.
        """
        levels = (logging.getLogger(each).getEffectiveLevel() for each in ("sparklog.driver", "sparklog"))
        start = StartController(
            configuration=config.raw,
            directory=str(directory),
            secret=secret.tls_seed.hex(),
            expected_brokers=tuple((node_id, rack) for node_id, rack in expected_brokers),
            new_cluster_id=new_cluster_id,
            initial_scram_users=tuple(map(encode_record, initial_scram_users)),
            brokers_run=False,
            log_level=min(logging.INFO, *levels),
        )
        sockets = bootstrap_sockets(config)
        servers = config.controller_quorum_bootstrap_servers
        with self._changed:
            self._sockets = sockets
            self._addresses = tuple(
                HostPort(server.address.host, each.getsockname()[1])
                for server, each in zip(servers, sockets, strict=True)
            )
            self._start = start
            child, begins = self._child, self._begins()
        if child is not None and begins is not None:
            child.begin(begins, sockets)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, which brokers connect to."""
        return str(self._addresses[0])

    @property
    def process_id(self) -> int | None:
        """None while there is no process."""
        child = self._child
        return None if child is None else child.process_id

    @property
    def leads(self) -> bool:
        return self._child is not None and self._machine.is_serving

    @property
    def lacks_voters(self) -> bool:
        """Whether this is an earlier cluster that waits for a majority of its voters."""
        state = self._state
        return state is not None and state.lacks_voters

    @property
    def unfenced_brokers(self) -> frozenset[BrokerId]:
        """The brokers that are registered and not fenced, by the last state message."""
        state = self._state
        return frozenset() if state is None else frozenset(state.unfenced)

    def wait_until_owner(self, timeout_s: float) -> int:
        """Wait until the object store's prefix is this application's; return the owner epoch.

        Raises:
            StartError: another application lives there, or the store cannot be used.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.failure is not None
                    or (self._state is not None and self._state.owner_epoch is not None)
                ),
                timeout_s,
            )
            state = self._state
        if self.failure is not None:
            raise self.failure
        if state is None or state.owner_epoch is None:
            missing = "" if state is None or state.missing is None else f": {state.missing}"
            raise StartError(
                f"the object store was not taken within {timeout_s:g} s (sparklog.start.timeout.ms){missing}"
            )
        return state.owner_epoch

    def wait_until_unfenced(self, broker_count: int, timeout_s: float) -> None:
        """Wait until all `broker_count` brokers are unfenced and know each other.

        Raises:
            TimeoutError: they are not within `timeout_s`; the message says which are registered.
            BaseException: the controller's failure.
        """
        with self._changed:
            in_time = self._changed.wait_for(
                lambda: self.failure is not None or (self._state is not None and self._state.serves),
                timeout_s,
            )
            state = self._state
        if self.failure is not None:
            raise self.failure
        if not in_time:
            unfenced, registered = (len(state.unfenced), list(state.registered)) if state else (0, [])
            missing = None if state is None else state.missing
            raise TimeoutError(
                f"{unfenced} of {broker_count} brokers are unfenced; "
                f"registered are {registered or 'none'}" + ("" if missing is None else f"; {missing}")
            )

    @property
    def state(self) -> ControllerState | None:
        """The last state message; None while there is no process that has sent one."""
        return self._state

    def expect_brokers(self, brokers: Sequence[tuple[BrokerId, str]]) -> None:
        """Note the brokers that the application has now, for the next process."""
        with self._changed:
            if self._start is not None:
                self._start = replace(self._start, expected_brokers=tuple(brokers))

    def resize(self, change: SizeChange) -> bool:
        """Change the size of the cluster; return False if the controller did not answer in time.

        Raises:
            ScaleError: the cluster cannot have that size; the message says why.
        """
        answer = self._answer(lambda number: Resize(number, *change))
        if isinstance(answer, Resized) and answer.refusal is not None:
            raise ScaleError(answer.refusal)
        return isinstance(answer, Resized)

    def broker_leaves(self, broker_id: BrokerId, rack_attempt: int, reason: str, *, is_lost: bool) -> None:
        """Shut down one broker while the cluster goes on; `is_lost`: its task has ended. Returns at once."""
        with self._changed:
            effects = self._machine.broker_leaves(broker_id, rack_attempt, reason, is_lost=is_lost)
        self._tell(effects)

    def stop_in_order(self, timeout_ms: int) -> None:
        """Begin to copy all that the cluster has to its object store; `is_copied` is its end."""
        with self._changed:
            effects = self._machine.stop_in_order(timeout_ms)
        self._tell(effects)

    def wait_until_copied(self, timeout_s: float) -> bool:
        """Return whether an orderly stop has come to its end, or cannot any more."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.failure is not None or (self._state is not None and self._state.is_copied),
                timeout_s,
            )

    def shut_down_brokers(self) -> None:
        """Answer every heartbeat with should_shut_down from now on."""
        with self._changed:
            effects = self._machine.cluster_leaves()
        self._tell(effects)

    def begin_tab(self) -> None:
        """Start to record events of the cluster for the Log tab."""
        with self._changed:
            self._tab_begun = True
            child = self._child if self._machine.is_serving else None
        if child is not None:
            child.send(BeginTab())

    def made_tab(self, observed: Observed) -> MadeTab | None:
        """Return the tab's overview, None if there is none in time."""
        with self._changed:
            events, self._restart_events = self._restart_events, []
        observed = replace(observed, events=(*events, *observed.events))
        answer = self._answer(lambda number: AskTab(number, observed))
        if not isinstance(answer, TabMade):
            with self._changed:
                self._restart_events = events + self._restart_events
            return None
        return answer.tab

    def made_page(self, key: str) -> MadePage | None:
        """Return a page of the tab, None if there is none in time."""
        answer = self._answer(lambda number: AskPage(number, key))
        return answer.page if isinstance(answer, PageMade) else None

    def metrics(self, restarts: Mapping[BrokerId, int]) -> tuple[str, str] | None:
        """Return all nodes' metrics, for Spark's sinks and for Prometheus, None if there are none in time."""
        answer = self._answer(lambda number: AskMetrics(number, tuple(restarts.items())))
        if not isinstance(answer, MetricsMade):
            return None
        return answer.metrics.for_sinks, answer.metrics.for_prometheus

    def stop(self) -> None:
        """End the controller and its process; the ports are free then."""
        with self._changed:
            effects = self._machine.stop()
            self._stopping.set()
            self._changed.notify_all()
        self._tell(effects)
        if self._thread.ident is not None:
            self._thread.join(STOP_TIMEOUT_S)
            if self._thread.is_alive() and (child := self._child) is not None:
                logger.warning("The controller did not end within %.0f s and is killed", STOP_TIMEOUT_S)
                child.kill()
                self._thread.join(STOP_TIMEOUT_S)
        self._close_sockets()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._changed:
                effects = self._machine.begin(monotonic_ms())
            while effects:
                effects = self._carried_out(*effects)
        except BaseException as error:  # of a thread: its waiting callers must see it
            self._fail(error)

    def _carried_out(self, effect: Effect) -> list[Effect]:
        match effect:
            case StartChild():
                return self._lived()
            case RestartAt(at_ms):
                self._stopping.wait(max(0, at_ms - monotonic_ms()) / 1000)
                with self._changed:
                    return self._machine.tick(monotonic_ms())
            case GiveUp(reason):
                self._fail(
                    StartError(
                        f"the controller's process ends before it serves ({reason}); it is run by "
                        f"sys.executable ({sys.executable}), and the driver's standard error says more"
                    )
                )
        return []

    def _lived(self) -> list[Effect]:
        """Start a process and process its messages until it ends; return the effects of its end."""
        try:
            child = Child.start()
        except OSError as error:
            return self._ended(f"it can't be started: {error}")
        with self._changed:
            self._child = child
            begins, sockets = self._begins(), self._sockets
        try:
            if self._stopping.is_set():
                child.kill()
            elif begins is not None:
                child.begin(begins, sockets)
            for message in child.messages():
                self._received(child, message)
        finally:
            with self._changed:
                self._child = self._state = None
                for question in self._questions.values():
                    question.set_result(None)
                self._questions.clear()
            how = child.ended()
        return self._ended(how)

    def _ended(self, how: str) -> list[Effect]:
        with self._changed:
            effects = self._machine.child_ended(how, monotonic_ms())
            if any(isinstance(effect, RestartAt) for effect in effects):
                logger.warning("The controller's process has ended (%s) and is started again", how)
                event = DriverEvent("controller restarted", "controller", f"its process has ended ({how})")
                self._restart_events = [*self._restart_events, event][-MAX_EVENTS:]
        return effects

    def _begins(self) -> StartController | None:
        """Return the start message of the current attempt; None before `start`."""
        if self._start is None:
            return None
        directory = Path(self._start.directory)
        for former in directory.glob("attempt-*"):
            shutil.rmtree(former, ignore_errors=True)
        return replace(
            self._start,
            directory=str(directory / f"attempt-{self._machine.attempt}"),
            brokers_run=self._machine.has_led,
        )

    def _received(self, child: Child, message: FromChild) -> None:
        match message:
            case LogLine():
                _log(message)
            case ControllerState():
                with self._changed:
                    self._state = message
                    effects: list[Effect] = []
                    begins_tab = False
                    if message.cluster_id is not None and not self._machine.is_serving:
                        self.cluster_id = message.cluster_id
                        effects = self._machine.child_leads(self.rack_attempts())
                        begins_tab = self._tab_begun
                    self._changed.notify_all()
                if begins_tab:
                    child.send(BeginTab())
                self._tell(effects)
            case Failed():
                error = error_of(message)
                with self._changed:
                    self._machine.child_failed()
                    if self._state is None and isinstance(error, KafkaError | OSError):
                        said = error.message if isinstance(error, KafkaError) else error
                        error = StartError(f"the controller can't start: {said}")
                self._fail(error)
            case _:
                with self._changed:
                    question = self._questions.pop(message.number, None)
                if question is not None:
                    question.set_result(message)

    def _tell(self, effects: Sequence[Effect]) -> None:
        child = self._child
        if child is None:
            return
        for effect in effects:
            match effect:
                case Tell(instruction):
                    child.send(instruction)
                case KillChild():
                    child.kill()

    def _answer(self, ask: Callable[[int], FromDriver]) -> FromChild | None:
        answer: Future[FromChild | None] = Future()
        with self._changed:
            child = self._child
            # A slow process gets no further queries.
            if child is None or not self._machine.is_serving or len(self._questions) >= MAX_QUESTIONS:
                return None
            number = next(self._numbers)
            self._questions[number] = answer
        child.send(ask(number))
        with contextlib.suppress(TimeoutError):
            return answer.result(ANSWER_WITHIN_S)
        return None

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.failure = self.failure or error
            self._changed.notify_all()
        # From now on connections are refused, instead of waiting for a process that will not come.
        self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()

    def close_in_fork(self) -> None:
        """Close the sockets in a process that was forked from the driver."""
        self._close_sockets()
        if self._child is not None:
            self._child.close_in_fork()


def _log(line: LogLine) -> None:
    target = logging.getLogger(line.name)
    if not target.isEnabledFor(line.level):
        return
    record = logging.LogRecord(line.name, line.level, line.path, line.line, line.message, (), None)
    record.created, record.msecs = line.created_s, line.created_s % 1 * 1_000
    record.threadName = line.thread
    record.exc_text = line.traceback
    try:
        target.handle(record)
    except Exception:  # of a user's filter: logging itself handles errors of handlers
        traceback.print_exc()


_living: Final[weakref.WeakSet[ControllerProcess]] = weakref.WeakSet()


def _close_in_fork() -> None:
    for each in list(_living):
        each.close_in_fork()


os.register_at_fork(after_in_child=_close_in_fork)
