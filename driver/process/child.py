"""The controller's process: `main` runs in it, and ends it.

It serves from the message StartController on, until the driver stops it or has ended: then the socket pair is
at its end, or, if a process that the driver forked holds it open, this process has another parent. Signals do
not end it (except SIGKILL): a Ctrl-C in a terminal is for the driver, and a service manager that ends the
whole application by SIGTERM ends it through its driver, in order.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.driver.monitoring.metrics_writer import MetricsWriter
from sparklog.driver.process.codec import decoded
from sparklog.driver.process.errors import failed_by
from sparklog.driver.process.frames import receive_frame, timeval
from sparklog.driver.process.machine.supervision import (
    BrokerLost,
    ShutDownBroker,
    ShutDownBrokers,
    StopController,
    StopInOrder,
)
from sparklog.driver.process.messages import (
    FROM_DRIVER,
    AskMetrics,
    AskPage,
    AskTab,
    BeginTab,
    ControllerState,
    FromChild,
    FromDriver,
    MetricsMade,
    NotMade,
    PageMade,
    Resize,
    Resized,
    StartController,
    TabMade,
    WrittenMetrics,
)
from sparklog.driver.process.outgoing import LogRelay, Outgoing
from sparklog.node.config import BrokerConfig
from sparklog.node.loop.garbage import freezing_survivors
from sparklog.node.metadata.cluster_size import ClusterSize, SizeChange
from sparklog.node.metadata.framing import decode_record
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.security.application_secret import ApplicationSecret

if TYPE_CHECKING:
    from sparklog.driver.ui.tab_pages import TabMaker

MAX_LISTENERS: Final = 64
PARENT_POLL_S: Final = 0.5
STATE_POLL_S: Final = 0.05
"""The interval of state messages during a start."""
QUIET_STATE_POLL_S: Final = 0.5
"""The interval of state messages afterwards."""
RESIZE_WITHIN_S: Final = 1.0
"""How long a change of the cluster's size may take to be committed."""
FAREWELL_S: Final = 2.0
"""How long the driver may take for the last messages."""
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

logger = logging.getLogger(__name__)


def main(descriptor: int, parent: int) -> None:
    """Serve the driver, process `parent`, at the other end of a socket pair; does not return."""
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(PARENT_POLL_S))
    outgoing = Outgoing(connection)
    relay = LogRelay(outgoing)
    logging.getLogger().addHandler(relay)
    child = _Child(connection, parent, outgoing)
    status = 1
    try:
        with freezing_survivors():
            status = child.run()
    except BaseException as error:
        logger.critical("The controller's process ends", exc_info=error)
    finally:
        outgoing.close(FAREWELL_S)
        # Threads that wait for brokers are abandoned: listeners and log are closed.
        os._exit(status)


class _Child:
    def __init__(self, connection: socket.socket, parent: int, outgoing: Outgoing) -> None:
        self._connection = connection
        self._parent = parent
        self._outgoing = outgoing
        self._server: ControllerServer | None = None
        self._make_tab: Callable[[], TabMaker] | None = None
        self._metrics_writer: MetricsWriter | None = None
        self._sending_state = threading.Lock()
        self._started = ClusterSize(0, 0)
        """The size with which the driver has started the cluster, or its controller again."""
        # Each has a thread of its own: a page may wait for brokers, and the metrics are needed every second.
        self._tab_worker = ThreadPoolExecutor(1, thread_name_prefix="sparklog tab")
        self._metrics_worker = ThreadPoolExecutor(1, thread_name_prefix="sparklog metrics")

    def run(self) -> int:
        """Serve until the driver stops the controller or ends; return the process's status."""
        sockets = self._listening_sockets()
        if sockets is None:
            return 1
        while True:
            frame = receive_frame(self._connection, self._has_driver)
            if frame is None:
                return 1
            message = decoded(frame, FROM_DRIVER)
            if isinstance(message, StopController):
                if self._server is not None:
                    self._server.stop()
                return 0
            if not isinstance(message, StartController):
                self._received(message)
            elif not self._start(message, sockets):
                return 1

    def _has_driver(self) -> bool:
        return os.getppid() == self._parent

    def _listening_sockets(self) -> list[socket.socket] | None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._connection, 1, MAX_LISTENERS)
            except BlockingIOError:
                if not self._has_driver():
                    return None
                continue
            return [socket.socket(fileno=each) for each in descriptors] if data else None

    def _start(self, start: StartController, sockets: list[socket.socket]) -> bool:
        logging.getLogger().setLevel(start.log_level)
        config = BrokerConfig.from_mapping(start.configuration)
        users = [decode_record(record) for record in start.initial_scram_users]
        self._started = ClusterSize.of(dict(start.expected_brokers), config.sparklog_rack_names)
        server = ControllerServer(
            config,
            Path(start.directory),
            secret=ApplicationSecret(start.secret),
            expected_brokers=[ExpectedBroker(*each) for each in start.expected_brokers],
            new_cluster_id=start.new_cluster_id,
            initial_scram_users=[user for user in users if isinstance(user, UserScramCredentialRecord)],
            sockets=sockets,
            brokers_run=start.brokers_run,
        )
        try:
            server.start()
        except Exception as error:
            self._outgoing.send(failed_by(error))
            return False
        self._server = server
        self._make_tab = cache(partial(_tab_of, config, server))
        self._metrics_writer = MetricsWriter(server.broker_metrics, CONTROLLER_ID)
        threading.Thread(target=self._tell_state, args=(server,), name="sparklog state", daemon=True).start()
        return True

    def _tell_state(self, server: ControllerServer) -> None:
        """Send the state after every change; end the process when the controller has failed."""
        sent: ControllerState | None = None
        while (failure := server.failure) is None:
            with self._sending_state:  # so that no state comes after a newer one
                state = _state_of(server, self._started)
                if state != sent:
                    sent = state
                    self._outgoing.send(state)
            time.sleep(QUIET_STATE_POLL_S if state.serves else STATE_POLL_S)
        server.stop()
        self._outgoing.send(failed_by(failure))
        self._outgoing.close(FAREWELL_S)
        os._exit(1)

    def _received(self, message: FromDriver) -> None:
        server, tab, metrics_writer = self._server, self._make_tab, self._metrics_writer
        assert server is not None and tab is not None and metrics_writer is not None, (
            "StartController comes first"
        )
        match message:
            case ShutDownBroker(broker_id, reason):
                server.shut_down_broker(broker_id, reason)
            case BrokerLost(broker_id):
                server.report_broker_lost(broker_id)
            case StopInOrder(timeout_ms):
                server.stop_in_order(timeout_ms)
            case ShutDownBrokers():
                server.shut_down_brokers()
            case BeginTab():
                self._tab_worker.submit(lambda: tab().begin())
            case AskTab(number, observed):
                self._answer(self._tab_worker, number, lambda: TabMade(number, tab().made_tab(observed)))
            case AskPage(number, key):
                self._answer(self._tab_worker, number, lambda: PageMade(number, tab().made_page(key)))
            case Resize(number, racks, brokers_per_rack):
                change = SizeChange(racks, brokers_per_rack)
                self._answer(self._tab_worker, number, lambda: self._resized(server, number, change))
            case AskMetrics(number, restarts):
                written = partial(metrics_writer.write, dict(restarts))
                self._answer(
                    self._metrics_worker, number, lambda: MetricsMade(number, WrittenMetrics(*written()))
                )

    def _resized(self, server: ControllerServer, number: int, change: SizeChange) -> Resized:
        refusal = server.resize(change, RESIZE_WITHIN_S)
        # Before the answer, so that the driver can tell a size that is not known yet from one given up.
        with self._sending_state:
            self._outgoing.send(_state_of(server, self._started))
        return Resized(number, refusal)

    def _answer(self, worker: ThreadPoolExecutor, number: int, make: Callable[[], FromChild]) -> None:
        def answer() -> None:
            try:
                self._outgoing.send(make())
            except Exception:  # of metrics or a page only: the controller goes on
                logger.exception("A request of the driver failed")
                self._outgoing.send(NotMade(number))

        worker.submit(answer)


def _tab_of(config: BrokerConfig, server: ControllerServer) -> "TabMaker":
    # Importing it takes a fifth of a second, which a start does not wait for.
    from sparklog.driver.ui.tab_pages import TabMaker

    return TabMaker(config, server)


def _state_of(server: ControllerServer, started: ClusterSize) -> ControllerState:
    image = server.image
    racks, brokers_per_rack = server.size_wanted
    size = started.changed(racks, brokers_per_rack)
    return ControllerState(
        cluster_id=server.cluster_id,
        lacks_voters=server.lacks_voters,
        missing_voters=server.missing_voters,
        missing=server.missing,
        unfenced=tuple(sorted(each for each, broker in image.brokers.items() if not broker.fenced)),
        registered=tuple(sorted(image.brokers)),
        # A cluster that became smaller serves without the brokers of its start.
        serves=server.serves_with(min(started.brokers, size.brokers)),
        owner_epoch=server.owner_epoch,
        is_copied=server.is_copied,
        racks=racks,
        brokers_per_rack=brokers_per_rack,
        surplus=tuple(server.surplus.items()),
        drained=tuple(sorted(server.drained)),
        may_restart=server.may_restart,
        broker_epochs=tuple((each, broker.broker_epoch) for each, broker in sorted(image.brokers.items())),
    )
