# Long because one class owns the thread and the order in which the controller's parts begin and end.
"""The controller's thread: an event loop with a listener, an election, and then an active controller.

This module decides nothing. From `start` on brokers can announce themselves; once an election is won, the
loop hands requests, ticks and reports of lost brokers to the `ActiveController`. Until then clients wait for
their answers, and a moment more for brokers that are late.

If the disk fails, or another driver takes the cluster over, the controller stops answering and stays
stopped: `failure` is the reason, and every waiting call raises it. Further answers could report changes that
no majority has.
"""

import asyncio
import contextlib
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from sparklog.driver.controller.active_controller import ActiveController, ControlledCluster, WonElection
from sparklog.driver.controller.bootstrap_listeners import BootstrapListeners
from sparklog.driver.controller.controller_metrics import ControllerMetrics
from sparklog.driver.controller.errors import DeposedError, StaleDirectoriesError
from sparklog.driver.controller.load_reports import LoadReports
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.live_brokers import LiveBrokers
from sparklog.driver.controller.machine.placement import UsableBroker
from sparklog.driver.controller.machine.rack_conflicts import rack_conflict
from sparklog.driver.controller.machine.startup_grace import StartupGrace
from sparklog.driver.controller.metadata_log import MetadataLog
from sparklog.driver.controller.quorum.broker_channels import BrokerChannels
from sparklog.driver.controller.quorum.candidacy import Candidacy
from sparklog.driver.controller.quorum.machine.candidate import BecomeLeader, Candidate, ExpectedBroker
from sparklog.driver.controller.remote.cluster_look import ClusterLook
from sparklog.driver.controller.remote.controller_tier import ControllerTier
from sparklog.driver.controller.remote.stopping import Stopping
from sparklog.driver.controller.started_controller import StartedController, listener_table
from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.driver.monitoring.client_metrics import ClientMetrics
from sparklog.driver.monitoring.telemetry_intake import TelemetryIntake
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig, HostPort
from sparklog.node.config.listener_security.listener_sasl import listener_authentication
from sparklog.node.config.size_request import configured_numbers, size_request
from sparklog.node.endpoints import Endpoint
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.loop.garbage import making_lasting_objects
from sparklog.node.loop.loop_lag import run_watched
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.node.metadata.features import advertised_features, finalized_features
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.sasl.scram import ScramCredential
from sparklog.node.serving.requests import Features
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, Offset, or_minus_one

TICK_MS: Final = 50
"""The interval of the checks of sessions, waiting fetches and leader balance."""

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
CommitSubscriber: TypeAlias = Callable[[MetadataImage, Mapping[BrokerId, str]], None]


class ControllerServer:
    """The cluster's controller in a thread of its own.

    All methods may be called from any thread. Order: `start`, then anything, then `stop`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: Path,
        *,
        secret: ApplicationSecret,
        expected_brokers: Sequence[ExpectedBroker],
        new_cluster_id: str,
        initial_scram_users: Sequence[UserScramCredentialRecord] = (),
        sockets: Sequence[socket.socket] = (),
        brokers_run: bool = False,
    ) -> None:
        """Serve the cluster to which the brokers' directories belong, or a new one if they belong to none.

        `directory` must be empty; nothing in it outlives the controller's use. The `secret` authenticates
        brokers. A new cluster gets the id `new_cluster_id` and the `initial_scram_users`. `sockets` listen at
        the configuration's bootstrap servers already, if there are any. `brokers_run`: this application has
        had a controller before, and its brokers need not register again.
        """
        self._initial_scram_users = initial_scram_users
        self._sockets = sockets
        self._brokers_run = brokers_run
        self._inherited: Offset = 0
        """Registrations below it are of an earlier driver's brokers."""
        self.secret = secret
        """Authenticates driver and brokers to each other."""
        self._config = config
        self._directory = directory
        self._addresses = [server.address for server in config.controller_quorum_bootstrap_servers]
        self.broker_metrics = BrokerMetrics()
        self.client_metrics = ClientMetrics()
        self._intake = TelemetryIntake(self.broker_metrics, self.client_metrics)
        self._application = new_cluster_id
        # Brokers that have had a controller before have logs: the store is not needed to go on.
        self._awaits_store = config.remote_uri is not None and not brokers_run
        self._candidate = Candidate(expected_brokers, new_cluster_id, awaits_store=self._awaits_store)
        self._expected_brokers = tuple(expected_brokers)
        self._brokers = [UsableBroker(each.node_id, each.rack, False) for each in expected_brokers]
        self._tier: ControllerTier | None = None
        self._cluster_credentials: ClusterCredentials | None = None
        self._stopping: Stopping | None = None
        self.is_copied = False
        """Whether an orderly stop has come to its end: all is copied, or its time is over."""
        self._lock = threading.Lock()
        self.cluster_id: str | None = None
        """The id of the served cluster; None before an election is won."""
        self.image: MetadataImage = EMPTY_IMAGE
        self._live_brokers = LiveBrokers()
        self.failure: BaseException | None = None
        """The error by which the controller stopped; None if there was none."""
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="sparklog controller", daemon=True)
        self._started_controller: StartedController | None = None
        self._subscribers: tuple[CommitSubscriber, ...] = ()

    @property
    def cluster_credentials(self) -> ClusterCredentials:
        """The credentials of this process for the first listener and the brokers in its responses."""
        return ClusterCredentials.to(self._config.controller_protocol, self.secret)

    def start(self) -> None:
        """Begin a metadata log and listen; return when brokers can announce themselves.

        Raises:
            KafkaError: the directory cannot be written.
            OSError: an address cannot be bound.
        """
        self._thread.start()
        self._started.wait()
        if self.failure is not None:
            raise self.failure

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, to which brokers connect."""
        return str(self._addresses[0])

    @property
    def bootstrap_servers_by_listener(self) -> Mapping[str, str]:
        """`host:port` for the clients of each of the brokers' listeners that has one here."""
        servers: dict[str, str] = {}
        for server, address in zip(
            self._config.controller_quorum_bootstrap_servers, self._addresses, strict=True
        ):
            servers.setdefault(server.listener_name, str(address))
        return servers

    @property
    def lacks_voters(self) -> bool:
        """Whether this is an earlier cluster that waits for a majority of its voters."""
        return self.cluster_id is None and self._candidate.voters is not None and self.missing is not None

    @property
    def missing_voters(self) -> tuple[BrokerId, ...]:
        """The voters without which no election can be won; none once one is."""
        return self._candidate.missing_voters if self.cluster_id is None else ()

    @property
    def missing(self) -> str | None:
        """The brokers or voters that the controller waits for, as a sentence; None while none is missing."""
        started, tier = self._started_controller, self._tier
        if started is None:
            return None
        if self._awaits_store and tier is not None and tier.missing is not None:
            return tier.missing
        active_controller = started.active_controller
        return self._candidate.missing() if active_controller is None else active_controller.missing

    @property
    def owner_epoch(self) -> int | None:
        """The epoch of the ownership of the store's prefix; None without a tier, and before it is taken."""
        tier = self._tier
        return None if tier is None else tier.owner_epoch

    @property
    def table_statuses(self) -> tuple[TableStatus, ...]:
        """The states of the tables that topics have; empty without a tier or a catalogue."""
        tables = None if self._tier is None else self._tier.tables
        return () if tables is None else tables.statuses

    def serves_with(self, broker_count: int) -> bool:
        """Whether `broker_count` brokers or more are live and know each other, and clients are served."""
        started = self._started_controller
        unfenced = _unfenced(self.image, self._inherited)
        return (
            len(unfenced) >= broker_count
            and started is not None
            and started.serves_clients.is_set()
            and self.know_each_other(unfenced)
        )

    def know_each_other(self, broker_ids: Collection[BrokerId]) -> bool:
        """Whether these brokers are unfenced, and each one's metadata has all of them."""
        started = self._started_controller
        active_controller = None if started is None else started.active_controller
        return active_controller is not None and self._live_brokers.know_each_other(
            broker_ids, active_controller.fetches.known_offsets
        )

    def report_broker_lost(self, broker_id: BrokerId) -> None:
        """Note the end of the broker's task or executor: it is probed, and fenced if it refuses."""
        self._call(lambda active: active.broker_liveness.suspect(broker_id))

    def shut_down_broker(self, broker_id: BrokerId, reason: str) -> None:
        """Shut down one broker while the cluster goes on; returns before it has left."""
        self._call(lambda active: active.decide(active.controller.shut_down_broker(broker_id, reason)))

    def resize(self, change: SizeChange, timeout_s: float) -> str | None:
        """Change the size of the cluster; return the reason of a refusal, None when it is committed.

        Raises:
            TimeoutError: this driver does not lead, or no majority of the voters answers.
        """
        answered: Future[Any] = Future()
        self._call(
            lambda active: active.commit_queue.submit(
                active.controller.handle(size_request(*change), monotonic_ms()), answered.set_result
            )
        )
        (changed,) = answered.result(timeout_s).responses
        return None if changed.error_code is ErrorCode.none else str(changed.error_message)

    @property
    def size_wanted(self) -> tuple[int | None, int | None]:
        """The configured numbers of racks and of brokers of a rack; None before the first commit."""
        return configured_numbers(self.image.broker_configs(None))

    @property
    def surplus(self) -> Mapping[BrokerId, int]:
        """The brokers beyond the cluster's size, each with the number of replicas still on it."""
        started = self._started_controller
        active = None if started is None else started.active_controller
        return {} if active is None else active.surplus

    @property
    def drained(self) -> frozenset[BrokerId]:
        """The brokers beyond the cluster's size that may end."""
        started = self._started_controller
        active = None if started is None else started.active_controller
        return frozenset() if active is None else active.drained

    @property
    def may_restart(self) -> bool:
        """Whether a broker that stays may start again beside surplus ones: all that stay are in sync."""
        started = self._started_controller
        active = None if started is None else started.active_controller
        return active is not None and active.may_restart

    def shut_down_brokers(self) -> None:
        """Answer every heartbeat with should_shut_down from now on."""
        self._call(lambda active: active.controller.shut_down_brokers())

    def stop_in_order(self, timeout_ms: int) -> None:
        """Begin to copy all that the cluster has to the object store; returns at once (`is_copied`)."""
        self._call(lambda active: self._begin_stopping(active, timeout_ms))

    def _begin_stopping(self, active: ActiveController, timeout_ms: int) -> None:
        if self._tier is None or self._cluster_credentials is None:
            self.is_copied = True
        elif self._stopping is None:
            channels = BrokerChannels(
                self._config.controller_quorum_request_timeout_ms, self._cluster_credentials
            )
            look = ClusterLook(channels, self._config)
            self._stopping = Stopping(active, self._tier, look, timeout_ms, self._copied)

    def _copied(self) -> None:
        self.is_copied = True

    def subscribe(self, subscriber: CommitSubscriber) -> None:
        """Call `subscriber` with every image that is committed from now on.

        The call comes on the controller's loop, so it may take note and nothing more. It has the image and
        the reason of each broker's last fencing or shutdown.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: CommitSubscriber) -> None:
        with self._lock:
            self._subscribers = tuple(each for each in self._subscribers if each != subscriber)

    def ask(self, question: Callable[[ActiveController], Answer], timeout_s: float) -> Answer | None:
        """Return the result of `question`, which is called on the controller's loop.

        None if this driver does not lead, or the loop does not come to it within `timeout_s`.
        """
        started = self._started_controller
        if started is None or started.active_controller is None:
            return None
        answer: Future[Answer] = Future()
        self._call(lambda active: answer.set_result(question(active)))
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            return None

    def stop(self) -> None:
        """Close listener and log, end the thread. Safe to call twice, and before `start` or amid it."""
        if self._thread.is_alive():
            self._started.wait()
        started = self._started_controller
        if started is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                started.loop.call_soon_threadsafe(started.stop_requested.set)
        if self._thread.is_alive():
            self._thread.join()

    def _call(self, action: Callable[[ActiveController], None]) -> None:
        """Call `action` on the loop if this driver leads."""
        started = self._started_controller
        if started is None:
            return

        def act() -> None:
            if started.active_controller is not None:
                action(started.active_controller)

        with contextlib.suppress(RuntimeError):  # the loop has ended already
            started.loop.call_soon_threadsafe(act)

    def _run_thread(self) -> None:
        try:
            run_watched(self._run(), "controller")
        except BaseException as error:  # of a thread: its waiting callers must see it
            self.fail(error)
        finally:
            self._started_controller = None
            self._started.set()

    async def _run(self) -> None:
        descriptors = DescriptorBudget.of_process()
        metrics = ControllerMetrics(descriptors, self.broker_metrics)
        log = await asyncio.to_thread(MetadataLog.open, self._directory, self._config)
        cluster_credentials = await asyncio.to_thread(
            ClusterCredentials.to, self._config.inter_broker_protocol, self.secret
        )
        self._cluster_credentials = cluster_credentials
        channels = BrokerChannels(self._config.controller_quorum_request_timeout_ms, cluster_credentials)
        started = StartedController(
            asyncio.get_running_loop(),
            asyncio.Event(),
            Candidacy(self._candidate, log, channels, monotonic_ms, partial(self._begin_at_stored, log)),
        )
        try:
            listeners = await BootstrapListeners.start(
                self._addresses,
                self._config,
                listener_table(started, self._config),
                self.secret,
                lambda name, cluster_mechanisms: listener_authentication(
                    self._config, name, cluster_mechanisms, self._credential_of, started.serves_clients
                ),
                self._features,
                descriptors,
                metrics.requests,
                self._sockets,
            )
            metrics.watch(listeners.listeners, lambda: started.active_controller, lambda: self.table_statuses)
            self._intake.start()
            self._addresses = [HostPort(each.host, each.port) for each in listeners.endpoints]
            logger.info("The controller listens on %s and waits for brokers", self.bootstrap_servers)
            self._started_controller = started
            self._started.set()
            try:
                self._tier = ControllerTier.open(self._config, self._application, self.bootstrap_servers)
                await self._lead(started, log, channels, listeners.endpoints, metrics)
            except Exception as error:
                self.fail(error)
            finally:
                failure = self.failure
                metrics.end(metadata_failed=failure is not None and not isinstance(failure, DeposedError))
                self._intake.stop()
                await listeners.close()
        finally:
            if self._tier is not None:
                await self._tier.close()
            channels.close()
            await asyncio.to_thread(log.close)

    async def _lead(
        self,
        started: StartedController,
        log: MetadataLog,
        channels: BrokerChannels,
        endpoints: Sequence[Endpoint],
        metrics: ControllerMetrics,
    ) -> None:
        """Win the election and serve, until stopped or failed."""
        won = asyncio.ensure_future(self._won(started))
        stopped = asyncio.ensure_future(started.stop_requested.wait())
        try:
            await asyncio.wait([won, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not won.done():
                return
            lead = won.result()
            image = await asyncio.to_thread(log.image)
            if (
                conflict := rack_conflict(image, self._expected_brokers, self._config.sparklog_rack_names)
            ) is not None:
                raise StaleDirectoriesError(conflict)
            assert self._candidate.cluster_id is not None, "known before the first request for a vote"
            controller = await asyncio.to_thread(_take_over, self._candidate.cluster_id, self._config, image)
            active_controller = started.active_controller = ActiveController(
                ControlledCluster(
                    self._candidate.cluster_id,
                    self._config,
                    endpoints,
                    self._expected_brokers,
                    self._initial_scram_users,
                    is_new_application=not self._brokers_run,
                ),
                log,
                WonElection(lead=lead, announced=self._candidate.announced_brokers, controller=controller),
                channels,
                self._intake,
                LoadReports(self.broker_metrics.latest),
                self,
            )
            active_controller.begin()
            if self._tier is not None:
                self._tier.leads(self._candidate.cluster_id)
            self.cluster_id = self._candidate.cluster_id
            started.handlers = active_controller.handlers
            self._inherited = 0 if self._brokers_run else image.end_offset
            startup_grace = StartupGrace(
                [each.node_id for each in self._expected_brokers], self._inherited, monotonic_ms()
            )
            try:
                await self._tick_until_stopped(started, active_controller, startup_grace, metrics)
            finally:
                started.handlers = {}
                if self._stopping is not None:
                    await self._stopping.close()
                await active_controller.end()
        finally:
            stopped.cancel()
            won.cancel()
            await asyncio.gather(won, stopped, return_exceptions=True)

    async def _won(self, started: StartedController) -> BecomeLeader:
        if self._awaits_store and self._tier is not None:
            started.candidacy.store_read(await self._tier.take())
        return await started.candidacy.won()

    async def _begin_at_stored(self, log: MetadataLog) -> None:
        assert self._tier is not None, "it has a snapshot"
        await self._tier.begin_log(log, self._brokers)

    async def _tick_until_stopped(
        self,
        started: StartedController,
        active_controller: ActiveController,
        startup_grace: StartupGrace,
        metrics: ControllerMetrics,
    ) -> None:
        late_s = 0.0
        while not started.stop_requested.is_set() and self.failure is None:
            active_controller.tick()
            metrics.tick(late_s)
            due_s = time.monotonic() + TICK_MS / 1000
            self._serve_clients_when_due(started, active_controller, startup_grace)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_MS / 1000):
                    await started.stop_requested.wait()
            late_s = max(0.0, time.monotonic() - due_s)

    def _serve_clients_when_due(
        self, started: StartedController, active_controller: ActiveController, startup_grace: StartupGrace
    ) -> None:
        if started.serves_clients.is_set() or startup_grace.lasts(
            self.image, active_controller.fetches.known_offsets, monotonic_ms()
        ):
            return
        started.serves_clients.set()

    def committed(self, image: MetadataImage, departure_reasons: Mapping[BrokerId, str]) -> None:
        with self._lock:
            self.image = image
            self._live_brokers.committed(image)
            subscribers = self._subscribers
        for subscriber in subscribers:
            subscriber(image, departure_reasons)

    def saved(self, metadata: MetadataSnapshot) -> None:
        """Copy the newest committed metadata to the object store soon."""
        if self._tier is not None:
            self._tier.committed(metadata)

    def _credential_of(self, user: str, mechanism: str) -> ScramCredential | None:
        return self.image.scram_credentials.get((user, mechanism))

    def _features(self) -> Features:
        image = self.image
        return Features(
            supported=advertised_features(),
            finalized=finalized_features(image),
            finalized_epoch=or_minus_one(image.offset),
        )

    def fail(self, error: BaseException) -> None:
        """End the controller because of an error, which becomes `failure`."""
        logger.critical("The controller ends: %s", error)
        with self._lock:
            self.failure = self.failure or error
        if self._started_controller is not None:
            self._started_controller.stop_requested.set()


def _take_over(cluster_id: str, config: BrokerConfig, image: MetadataImage) -> Controller:
    """Return the controller at `image`, off the loop: it looks through all partitions."""
    with making_lasting_objects():
        return Controller(cluster_id, config, uuid.uuid4, image)


def _unfenced(image: MetadataImage, since: Offset) -> list[BrokerId]:
    # A broker's epoch is the offset of its registration.
    brokers = image.brokers.items()
    return [each for each, broker in brokers if not broker.fenced and broker.broker_epoch >= since]
