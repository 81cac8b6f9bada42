"""A broker's process: production lifecycle, image, roles and replicas, and the loops that join them.

Its life is the steps of `BrokerLifecycle`, which the shell `sparklog.executor.control.broker_life` takes as
well. What it does with the metadata is `sparklog.executor.partitions.roles` itself, over the logs of a
simulated disk. It mirrors the shell `sparklog.executor.metadata.follower`: the same steps in the same order,
without asyncio.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sparklog.driver.controller.machine.unclean_recovery import LogQuestion
from sparklog.executor.control.machine.broker_lifecycle import (
    Ask,
    BrokerIdentity,
    BrokerLifecycle,
    Leave,
    Wait,
)
from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.executor.logs.machine.upkeep_schedule import UpkeepSchedule
from sparklog.executor.partitions.isr_checks import IsrChecks
from sparklog.executor.partitions.lease import Lease
from sparklog.executor.partitions.log_end import position_of
from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.executor.partitions.machine.events import Ticked
from sparklog.executor.partitions.replica import Replica, ReplicaHost
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.roles import Roles
from sparklog.executor.partitions.settings import TopicSettings
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.features import SUPPORTED_FEATURES
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.registrations import FeatureRange
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.protocol.codec.fixed.fetch import FollowerFetchRequest
from sparklog.protocol.types import BrokerEpoch, BrokerId, ProducerId
from tests.simulation.async_loop import AsyncLoop, set_running_loop
from tests.simulation.cleaning import Cleaner
from tests.simulation.coordinating import AskCoordinator, Coordinating
from tests.simulation.disk import Disk
from tests.simulation.following import FetchLoops
from tests.simulation.leading import ConsumerFetch, Leading, Produce
from tests.simulation.logs import DiskLogs, at_once
from tests.simulation.network import Connection, Link, Process, Reply
from tests.simulation.proposals import Proposals
from tests.simulation.publishing import Publishing
from tests.simulation.quorum_messages import AskLogEnds
from tests.simulation.serving import ApiRequest, BrokerLinks, Serving, transaction_verifier
from tests.simulation.voting import Voting
from tests.simulation.watched_table import WatchedTable

if TYPE_CHECKING:
    from tests.simulation.cluster import World

LISTENER: Final = "PLAINTEXT"
REPLICAS_TICK_MS: Final = 200
LOADING_MS: Final = 300
"""How long a log takes to make out its producers after it was cut."""
CHECKPOINT_TICKS: Final = 12
RETRY_MS: Final = 100
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 5_000
_PRODUCER_ID_MS: Final = 20
"""How long it may take to be given one, at most."""


class DescribeTopics:
    """A client asks for the image, as it would with Metadata."""


class BrokerProcess(Process):
    """One incarnation of a broker."""

    def __init__(self, world: "World", broker_id: BrokerId, disk: Disk, incarnation: int) -> None:
        random = world.scheduler.random
        super().__init__(
            world.network,
            f"broker-{broker_id}",
            clock_offset_ms=random.randrange(10**6),
            drift=random.uniform(-world.max_drift, world.max_drift),
        )
        self.world = world
        self.broker_id = broker_id
        self.name = f"broker {broker_id}"
        self.disk = disk
        self.incarnation = incarnation
        self.incarnation_id = UUID(int=(broker_id + 1) * 10**6 + incarnation)
        self.controller_host: str = world.controller_host
        self.applied_image: MetadataImage = EMPTY_IMAGE
        """What its replicas know all of."""
        self.replicas = WatchedTable(LISTENER)
        self.went_on_ms = 0
        """When it was last continued after a stop, in the world's time."""
        config: BrokerConfig = world.config
        self._config = config
        self.request_timeout_ms = config.controller_quorum_request_timeout_ms
        self._previous_broker_epoch = disk.previous_broker_epoch
        disk.broker_epoch_at_clean_shutdown = None
        self.lifecycle: BrokerLifecycle | None = None
        """None until it belongs to a cluster and knows a leader."""
        self._link = Link(self, self.controller_host)
        self.loop = AsyncLoop(self)
        self.marker_sender = MarkerSender(
            BrokerLinks(self, config.request_timeout_ms),  # type: ignore[arg-type]
            lambda: self.image,
            self.obey_lease,
            lambda: self.now_ms,
        )
        verifier = transaction_verifier(self, config)
        self._leading = Leading(self, verifier)
        self._loops = FetchLoops(self)
        self._asking = False
        self._live_due_ms: int | None = None
        self._stop_asked = False
        self.publishing = Publishing(self)
        self._lease = Lease(self.replicas, self._holds_lease, lambda: self.now_ms)
        self._isr_checks = IsrChecks(
            self.replicas, Proposals(self, self._link), config.replica_lag_time_max_ms
        )
        coordinators = () if not world.coordinates else (Coordinating(self),)
        self._coordinators: tuple[Coordinating, ...] = coordinators
        self._serving = [
            Serving(self, config, self._leading, coordinating, verifier) for coordinating in coordinators
        ]
        host = ReplicaHost(
            broker_id=broker_id,
            broker_epoch=lambda: self.broker_epoch,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            now_ms=lambda: self.now_ms,
            listeners=(self._loops, self._isr_checks, _Watch(self), *self._coordinators, self.marker_sender),
            propose_isr=self._isr_checks.propose,
            load_producers=self._begin_loading,
            log_failed=self._log_failed,
            log_damaged=self._log_damaged,
        )
        # In which of its directories a replica lies is no question here: there is one.
        reports = DirectoryReports(broker_id, lambda key, directory_id: None)
        self._roles = Roles(host, self.replicas, DiskLogs(disk), TopicSettings(config), reports, self._lease)
        self._upkeep: UpkeepSchedule[Callable[[], None]] = UpkeepSchedule()
        self._upkeep.add(
            self._write_high_watermarks,
            interval_ms=CHECKPOINT_TICKS * REPLICAS_TICK_MS,
            first_due_ms=self.now_ms
            + (CHECKPOINT_TICKS - random.randrange(CHECKPOINT_TICKS)) * REPLICAS_TICK_MS,
        )
        self._link.connect()
        self.voting = Voting(self, self._link, Link(self, self.controller_host))
        if world.compacts:
            self._cleaner = Cleaner(self)
        self.after(REPLICAS_TICK_MS, self._tick)

    @property
    def image(self) -> MetadataImage:
        """The cluster as its replicas know it, or are about to."""
        return self.replicas.image

    @property
    def coordinates(self) -> bool:
        """Whether it is anybody's coordinator."""
        return any(coordinating.is_asked for coordinating in self._coordinators)

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """The broker epoch, once it is known."""
        return None if self.lifecycle is None else self.lifecycle.broker_epoch

    def joined(self) -> None:
        """The broker belongs to a cluster, and knows a leader with whom to register."""
        if self.lifecycle is not None:
            return
        world, disk, config = self.world, self.disk, self._config
        assert disk.cluster_id is not None
        self.lifecycle = BrokerLifecycle(
            BrokerIdentity(
                cluster_id=disk.cluster_id,
                node_id=self.broker_id,
                incarnation_id=self.incarnation_id,
                rack=f"rack-{self.broker_id % world.rack_count}",
                listeners=(Endpoint(LISTENER, self.host, 9092),),
                features=tuple((name, FeatureRange(*levels)) for name, levels in SUPPORTED_FEATURES.items()),
                log_directories=(disk.directory_id,),
                previous_broker_epoch=self._previous_broker_epoch,
            ),
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            controlled_shutdown_timeout_ms=CONTROLLED_SHUTDOWN_TIMEOUT_MS,
            now_ms=self.now_ms,
        )
        self._live()

    @property
    def known_lifecycle(self) -> BrokerLifecycle:
        """The lifecycle of a broker that has joined."""
        assert self.lifecycle is not None, "it has joined"
        return self.lifecycle

    def run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        set_running_loop(self.loop)
        try:
            super().run(action, arguments)
        finally:
            set_running_loop(None)

    def end(self, *, silently: bool) -> None:
        super().end(silently=silently)
        self.loop.close()

    async def new_producer_id(self, timeout_ms: int) -> ProducerId:
        """Return an id that nobody has had."""
        await asyncio.sleep(self.scheduler.random.randrange(_PRODUCER_ID_MS) / 1000)
        self.world.next_producer_id += 1
        return self.world.next_producer_id

    def touched(self) -> None:
        if self.alive:
            self.world.broker_acted(self)

    def go_on(self) -> None:
        self.went_on_ms = self.scheduler.now_ms
        super().go_on()

    # --- requests -------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: Any, reply: Reply) -> None:
        if self.voting.receive(message, reply):
            return
        if not self.publishing.has_begun:
            # Connections that come early wait in the listen queue.
            self.after(RETRY_MS, self.receive, connection, message, reply)
            return
        match message:
            case Produce() | FollowerFetchRequest() | ConsumerFetch() | AskCoordinator() | ApiRequest():
                self.obey_lease()
        match message:
            case Produce():
                self._leading.produce(connection, message, reply)
            case FollowerFetchRequest():
                self._leading.fetch(connection, message, reply)
            case ConsumerFetch():
                self._leading.consumer_fetch(connection, message, reply)
            case AskCoordinator():
                for coordinating in self._coordinators:
                    coordinating.ask(message, reply)
            case ApiRequest():
                for serving in self._serving:
                    serving.ask(connection, message, reply)
            case DescribeTopics():
                reply(self.image)
            case AskLogEnds(question):
                reply(self._log_ends(question))

    def _log_ends(self, question: LogQuestion) -> dict[tuple[str, int], LogPosition]:
        return {
            (topic, replica.key.partition): position_of(replica.log)
            for replica in self.replicas
            if (topic := replica.topic_partition.topic) in question.leader_epochs
            and question.leader_epochs[topic].get(replica.key.partition) == replica.leader_epoch
            and not replica.offline
        }

    # --- life -----------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        self._stop_asked = True
        if self.lifecycle is None:
            self._leave()
        else:
            self._wake()

    def _wake(self) -> None:
        self._live_at(self.now_ms)

    def _live_at(self, due_ms: int) -> None:
        if self._live_due_ms is None or due_ms < self._live_due_ms:
            self._live_due_ms = due_ms
            self.after(max(due_ms - self.now_ms, 0), self._live_if_due)

    def _live_if_due(self) -> None:
        if self._live_due_ms is not None and self.now_ms >= self._live_due_ms - 1:
            self._live_due_ms = None
            self._live()

    def _live(self) -> None:
        if self._asking:
            return
        now_ms, lifecycle, lost_at_ms = self.now_ms, self.known_lifecycle, self._link.lost_at_ms
        step = lifecycle.step(
            now_ms,
            stop_asked=self._stop_asked,
            is_connected=self._link.is_connected,
            unreachable_ms=0 if lost_at_ms is None else now_ms - lost_at_ms,
            is_refused=False,
        )
        match step:
            case Leave():
                self._leave()
            case Wait(until_ms):
                if not self._link.is_connected:
                    self._link.connect()
                self._live_at(until_ms)
            case Ask(request):
                self._asking = True
                timeout_ms = self._config.controller_quorum_request_timeout_ms
                self._link.request(request, timeout_ms, self._controller_answered)

    def _controller_answered(self, response: Any) -> None:
        self._asking = False
        lifecycle = self.known_lifecycle
        was_registered = lifecycle.broker_epoch is not None
        lifecycle.answered(response, self.now_ms)
        if lifecycle.broker_epoch is not None and not was_registered:
            self.world.tell(None, f"{self.name} registered with broker epoch {lifecycle.broker_epoch}")
            self.disk.running_broker_epoch = lifecycle.broker_epoch
            self.publishing.go_on()
        self._live()

    def _leave(self) -> None:
        if any(replica.offline for replica in self.replicas):
            self.world.broker_left(self)
            return
        for replica in self.replicas:
            replica.stop()
            self.disk.high_watermarks[replica.key] = replica.high_watermark
        self.disk.sync()
        self.disk.running_broker_epoch = None
        # As it was, if it never registered.
        epoch = self.broker_epoch
        self.disk.broker_epoch_at_clean_shutdown = self._previous_broker_epoch if epoch is None else epoch
        self.world.broker_left(self)

    def _holds_lease(self, now_ms: int) -> bool:
        lifecycle = self.lifecycle
        return lifecycle is None or lifecycle.broker_epoch is None or lifecycle.holds_lease(now_ms)

    @property
    def has_lease(self) -> bool:
        """Whether the broker may lead, as it knows now."""
        self.obey_lease()
        return self._lease.is_held

    def obey_lease(self) -> None:
        """See whether this broker may still answer as a leader."""
        was_held = self._lease.is_held
        self._lease.obey()
        if self._lease.is_held is not was_held:
            self.world.tell(None, f"{self.name}'s lease {'has run out' if was_held else 'is renewed'}")

    def _tick(self) -> None:
        self.obey_lease()
        now_ms = self.now_ms
        for replica in self._isr_checks.take_due(now_ms):
            replica.handle(Ticked(now_ms))
        for job in self._upkeep.begin_due(now_ms):
            job()
            self._upkeep.ended(job)
        self.after(REPLICAS_TICK_MS, self._tick)

    def _write_high_watermarks(self) -> None:
        for replica in self.replicas:
            self.disk.high_watermarks[replica.key] = replica.high_watermark

    # --- metadata -------------------------------------------------------------------------------

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Act on `image`, of which `delta` is new."""
        at_once(self._roles.apply(image, delta))
        self.applied_image = image
        for coordinating in self._coordinators:
            coordinating.apply(image, delta)
            at_once(self.marker_sender.apply(image, delta))
        # Before another image has a role forget what this leader has committed.
        self.touched()
        registration = image.brokers.get(self.broker_id)
        registered_epoch = None if registration is None else registration.broker_epoch
        self.known_lifecycle.metadata_applied(image.offset, registered_epoch, self.now_ms)
        self._wake()

    # --- what replicas ask for ------------------------------------------------------------------

    def _begin_loading(self, replica: Replica) -> None:
        """Take a while over it: roles change and clients retry meanwhile."""
        self.after(LOADING_MS, self._load_producers, replica, replica.log.loading)

    def _load_producers(self, replica: Replica, loading: Any) -> None:
        if replica in self.replicas and replica.log.loading is loading:
            replica.producers_loaded(loading, self.disk.logs[replica.key].loaded_producers())
            self._loops.add(replica)

    def _log_damaged(self, replica: Replica) -> None:
        """What was written back stays as it was written, here."""
        raise AssertionError(f"{replica} is damaged")

    def _log_failed(self, replica: Replica, error: BaseException) -> None:
        """The only log directory failed."""
        self.world.tell(replica.key, f"{self.name}: {error}")
        self.disk.failed_epoch = self.broker_epoch
        self.known_lifecycle.directory_failed(self.disk.directory_id, self.now_ms, is_last=True)
        self._wake()


class _Watch(RoleListener[Replica]):
    """Has the world look at what a broker leads."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def became_leader(self, replica: Replica) -> None:
        registration = self._broker.image.topics.partition(*replica.key)
        assert registration is not None
        self._broker.world.leads(self._broker, replica, registration)

    def low_watermark_moved(self, replica: Replica) -> None:
        """Before another role forgets what this leader has committed."""
        self._broker.touched()
