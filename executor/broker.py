"""One broker: locks its directories, takes part in the quorum, registers, serves, and leaves in order.

The order of a start: lock the directories; join the metadata quorum, so that a driver can lead it, and load
the logs meanwhile (off the loop); once there is a leader, bind the listeners (their ports go into the
registration), register, replay the metadata log up to the own registration, then ask to be unfenced and
answer clients. Connections that come earlier wait in the listen queue, so that nobody is told of an empty
cluster.

The order of an end: hand leaderships over (controlled shutdown), stop listening, flush and close the logs,
write the clean-shutdown markers, leave the quorum, give up the locks. A broker that was refused or replaced,
or whose metadata cannot be replayed, has nothing to hand over and does the rest.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from executor.api.apis import BrokerServices, partition_apis
from executor.api.client_listeners import ClientListeners
from executor.control.alter_partition_sender import AlterPartitionSender
from executor.control.assign_directories_sender import AssignDirectoriesSender
from executor.control.auto_topic_creation import AutoTopicCreation
from executor.control.controller_link import ControllerLink, ControllerUnreachableError
from executor.control.forwarding import Forwarder
from executor.control.machine.broker_lifecycle import (
    BrokerDiskError,
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
)
from executor.control.producer_id_blocks import ProducerIdBlocks
from executor.control.suspected_brokers import BrokerSuspicions
from executor.logs.directories import DataDirectories
from executor.loop.concurrency import end, result_of, until_first_ends
from executor.metadata.quorum_member import QuorumMember
from executor.partitions.log_end import log_end
from executor.replicas import Replicas
from sparklog.clocks import monotonic_ms
from sparklog.config import BrokerConfig
from sparklog.endpoints import Endpoint
from sparklog.errors import KafkaError
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.features import SUPPORTED_FEATURES
from sparklog.metadata.image import EMPTY_IMAGE, FeatureRange, MetadataImage
from sparklog.storage import LogDirectory
from sparklog.storage.files import is_disk_error
from sparklog.types import BrokerEpoch, BrokerId
from sparklog.wire.descriptors import DescriptorBudget

__all__ = ["Broker", "BrokerState"]

REPLICAS_TICK_MS: Final = 200
LIFECYCLE_POLL_MS: Final = 100
"""How often a broker looks at the clock while it waits for something else."""
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 10_000

logger = logging.getLogger(__name__)


class Broker:
    """A Kafka broker on the running asyncio loop.

    Listeners on every interface are advertised under `host_name`, by which others reach this host.
    """

    def __init__(
        self,
        *,
        node_id: BrokerId,
        rack: str | None,
        controller: tuple[str, int],
        config: BrokerConfig,
        directories: Sequence[Path],
        host_name: str,
        on_state: Callable[[BrokerState], None] = lambda state: None,
    ) -> None:
        self.node_id = node_id
        self.endpoints: tuple[Endpoint, ...] = ()
        """Where clients are told to connect; empty until the listeners are bound."""
        self._rack = rack
        self._controller = controller
        self._config = config.with_identity(node_id, rack)
        self._paths = list(directories)
        self._host_name = host_name
        self._on_state = on_state
        self._state = BrokerState.NOT_RUNNING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_reason: str | None = None
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._image: MetadataImage = EMPTY_IMAGE
        self._lifecycle: BrokerLifecycle | None = None
        self._abandoned = False
        """Whether the driver went before it led, so that nobody was left to wait for."""
        self._listeners: ClientListeners | None = None
        self._descriptors = DescriptorBudget.of_process()

    @property
    def state(self) -> BrokerState:
        """Where the broker is in its life."""
        return self._state

    @property
    def image(self) -> MetadataImage:
        """The cluster as this broker acts on it."""
        return self._image

    @property
    def cluster_ended(self) -> bool:
        """Whether it left because the whole cluster ends; without that it is wanted back."""
        return self._abandoned or (self._lifecycle is not None and self._lifecycle.cluster_ended)

    @property
    def stop_reason(self) -> str | None:
        """What `stop` was given; None if it was not called."""
        return self._stop_reason

    def stop(self, reason: str) -> None:
        """Begin a controlled shutdown; safe from any thread and from a signal handler; idempotent."""
        if self._stop_reason is None:
            self._stop_reason = reason
            logger.info("Stopping: %s", reason)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Start, serve until told to leave, and leave; returns after a clean shutdown.

        Raises:
            ForeignDirectoryError: (storage) a directory is another's, or not of the driver's cluster.
            DirectoryLockedError: (storage) a live process holds one; nothing has happened yet, and `run` may
                be called again.
            RegistrationRefusedError: the controller will not have this broker, whatever it retries.
            BrokerReplacedError: another incarnation has this broker's place.
            BrokerDiskError: no log directory is left, or that of the metadata log failed.
            KafkaError: the metadata log cannot be replayed or written, or a disk failed at the start.
        """
        self._loop = asyncio.get_running_loop()
        if self._stop_reason is not None:
            self._stopping.set()
        self._enter(BrokerState.STARTING)
        directories = await asyncio.to_thread(
            DataDirectories.open, self._paths, self._metadata_path(), self.node_id
        )
        try:
            await self._run_on(directories)
        finally:
            await asyncio.to_thread(directories.close)
            self._enter(BrokerState.NOT_RUNNING)

    async def _run_on(self, directories: DataDirectories) -> None:
        config, (host, port) = self._config, self._controller
        await asyncio.to_thread(directories.check_descriptors, self._descriptors.limit)
        async with contextlib.AsyncExitStack() as leaving:
            link = ControllerLink(host, port, f"broker-{self.node_id}")
            metadata_link = ControllerLink(host, port, f"broker-{self.node_id}-metadata", name="metadata log")
            proposals = AlterPartitionSender(link, self.node_id, self._broker_epoch)
            leaving.push_async_callback(proposals.close)
            creation = AutoTopicCreation(link, config.request_timeout_ms)
            leaving.push_async_callback(creation.close)
            assignments = AssignDirectoriesSender(link, self.node_id, self._broker_epoch)
            leaving.push_async_callback(assignments.close)
            suspicions = BrokerSuspicions(asyncio.get_running_loop())
            replicas = Replicas(
                self.node_id,
                self._registered_epoch,
                directories.logs,
                config,
                proposals,
                suspicions,
                assign=assignments.assign,
                on_directory_failed=lambda directory: self._directory_failed(directory, directories),
                holds_lease=self._holds_lease,
            )

            async def publish(image: MetadataImage, delta: MetadataDelta) -> None:
                self._image = image
                suspicions.image_changed(image)
                await replicas.apply(image, delta)
                self._image_applied(image, has_undeclared_damage=replicas.reports.undeclared > 0)

            def services(cluster_id: str) -> BrokerServices:
                return BrokerServices(
                    cluster_id=cluster_id,
                    node_id=self.node_id,
                    config=config,
                    image=lambda: self._image,
                    partition_apis=partition_apis(replicas, config),
                    suspicions=suspicions,
                    forwarder=Forwarder(link, config.request_timeout_ms),
                    auto_topic_creation=creation,
                    producer_ids=ProducerIdBlocks(link, self.node_id, self._broker_epoch),
                )

            quorum = await QuorumMember.start(
                directories,
                self.node_id,
                config,
                self._host_name,
                link=link,
                metadata_link=metadata_link,
                broker_epoch=self._registered_epoch,
                publish=publish,
                on_caught_up=self._caught_up,
                log_end=partial(log_end, replicas.table),
                descriptors=self._descriptors,
                now_ms=monotonic_ms,
            )
            leaving.push_async_callback(quorum.close)
            link.on_connected = lambda: self._connected(quorum)
            # Until the logs are closed the quorum is to have this broker.
            following = asyncio.ensure_future(_follow(quorum, metadata_link, directories.metadata))
            leaving.push_async_callback(end, following)
            loading = asyncio.ensure_future(replicas.start())
            leaving.push_async_callback(self._shut_down, replicas, loading, directories)
            await until_first_ends(
                self._serve(directories, link, quorum, replicas, loading, services, leaving),
                link.run(),
                quorum.announce(),
                quorum.publish(),
                result_of(following),
            )
            self._enter(BrokerState.SHUTTING_DOWN)
        if self._lifecycle is not None and self._lifecycle.failure is not None:
            raise self._lifecycle.failure

    async def _serve(
        self,
        directories: DataDirectories,
        link: ControllerLink,
        quorum: QuorumMember,
        replicas: Replicas,
        loading: "asyncio.Future[None]",
        services: Callable[[str], BrokerServices],
        leaving: contextlib.AsyncExitStack,
    ) -> None:
        """Wait for a leader and for the logs, then live until it is time to shut down."""
        await until_first_ends(quorum.joined(), self._stop_asked(), self._driver_gone(link))
        if not self._is_leaving:
            await until_first_ends(result_of(loading), self._stop_asked(), self._driver_gone(link))
        if self._is_leaving:
            return
        assert quorum.cluster_id is not None, "there is a leader, so there is a cluster"
        if (failure := directories.metadata.failure) is not None:
            raise BrokerDiskError(
                f"the directory of the metadata log, {directories.metadata.path}: {failure}"
            )
        listeners = await ClientListeners.start(
            self._config, self._host_name, services(quorum.cluster_id), self._descriptors
        )
        leaving.push_async_callback(listeners.close)
        self._listeners, self.endpoints = listeners, listeners.endpoints
        lifecycle = self._lifecycle = self._new_lifecycle(quorum.cluster_id, directories)
        await until_first_ends(self._live(lifecycle, link, quorum, directories), self._tick(replicas))

    @property
    def _is_leaving(self) -> bool:
        return self._abandoned or self._stop_reason is not None

    async def _stop_asked(self) -> None:
        await self._stopping.wait()

    async def _driver_gone(self, link: ControllerLink) -> None:
        await link.gone()
        logger.info("Leaving: the driver has gone before it led")
        self._abandoned = True

    def _connected(self, quorum: QuorumMember) -> None:
        self._wake.set()
        quorum.connected()

    def _directory_failed(self, directory: LogDirectory, directories: DataDirectories) -> None:
        lifecycle = self._lifecycle
        if lifecycle is not None and directory.meta is not None:
            is_last = directory is directories.metadata or not directories.online
            lifecycle.directory_failed(directory.meta.directory_id, monotonic_ms(), is_last=is_last)
            self._wake.set()

    def _image_applied(self, image: MetadataImage, *, has_undeclared_damage: bool) -> None:
        lifecycle = self._lifecycle
        assert lifecycle is not None, "the first image has the registration in it"
        lifecycle.has_undeclared_damage = has_undeclared_damage
        registration = image.brokers.get(self.node_id)
        registered_epoch = None if registration is None else registration.broker_epoch
        lifecycle.metadata_applied(image.offset, registered_epoch, monotonic_ms())
        assert self._listeners is not None, "they are bound before the registration"
        self._listeners.accept_connections()
        self._wake.set()

    def _caught_up(self, sent_ms: int) -> None:
        if self._lifecycle is not None:
            self._lifecycle.metadata_fetched(sent_ms)

    async def _live(
        self,
        lifecycle: BrokerLifecycle,
        link: ControllerLink,
        quorum: QuorumMember,
        directories: DataDirectories,
    ) -> None:
        """Register, beat, and do what the answers say, until it is time to shut down."""
        timeout_ms = self._config.controller_quorum_request_timeout_ms
        while True:
            now_ms = monotonic_ms()
            self._wake.clear()
            if self._stop_reason is not None:
                lifecycle.stop_asked(now_ms)
            lifecycle.tick(now_ms)
            lifecycle.controller_gone(link.unreachable_ms, refused=link.is_refused)
            self._enter(lifecycle.state)
            if lifecycle.state is BrokerState.SHUTTING_DOWN:
                return
            if lifecycle.due_ms > now_ms or not link.is_connected:
                pause_ms = min(max(lifecycle.due_ms - now_ms, 1), LIFECYCLE_POLL_MS)
                if not link.is_connected:
                    pause_ms = LIFECYCLE_POLL_MS
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause_ms / 1000)
                continue
            request = lifecycle.next_request(now_ms)
            try:
                response = await link.request(request, timeout_ms)
            except ControllerUnreachableError as error:
                logger.warning("%s", error)
                lifecycle.request_failed(monotonic_ms())
                continue
            if lifecycle.broker_epoch is None:
                lifecycle.registration_answered(response.error_code, response.broker_epoch, monotonic_ms())
                if lifecycle.broker_epoch is not None:
                    logger.info("Registered with broker epoch %d", lifecycle.broker_epoch)
                    await asyncio.to_thread(directories.note_running, lifecycle.broker_epoch)
                    quorum.registered()
            else:
                lifecycle.heartbeat_answered(
                    response.error_code, response.is_fenced, response.should_shut_down, monotonic_ms()
                )

    async def _tick(self, replicas: Replicas) -> None:
        """Let time pass for the replicas."""
        while True:
            await asyncio.sleep(REPLICAS_TICK_MS / 1000)
            replicas.tick(monotonic_ms())

    def _holds_lease(self, now_ms: int) -> bool:
        """Whether this broker may lead; before it is registered there is nothing that it could."""
        lifecycle = self._lifecycle
        return lifecycle is None or lifecycle.broker_epoch is None or lifecycle.holds_lease(now_ms)

    async def _shut_down(
        self, replicas: Replicas, loading: "asyncio.Future[None]", directories: DataDirectories
    ) -> None:
        await asyncio.wait([loading])
        if loading.cancelled() or (error := loading.exception()) is not None:
            logger.error(
                "No clean shutdown: the logs were not loaded%s", "" if loading.cancelled() else f": {error}"
            )
            return
        await replicas.shutdown()
        await asyncio.to_thread(directories.write_clean_shutdown, self._registered_epoch())

    def _new_lifecycle(self, cluster_id: str, directories: DataDirectories) -> BrokerLifecycle:
        config = self._config
        identity = BrokerIdentity(
            cluster_id=cluster_id,
            node_id=self.node_id,
            incarnation_id=uuid4(),
            rack=self._rack,
            listeners=self.endpoints,
            features=tuple((name, FeatureRange(*levels)) for name, levels in SUPPORTED_FEATURES.items()),
            log_directories=directories.log_ids,
            previous_broker_epoch=directories.previous_broker_epoch,
        )
        return BrokerLifecycle(
            identity,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            controlled_shutdown_timeout_ms=(
                CONTROLLED_SHUTDOWN_TIMEOUT_MS if config.controlled_shutdown_enable else 0
            ),
            now_ms=monotonic_ms(),
        )

    def _metadata_path(self) -> Path | None:
        configured = self._config.metadata_log_dir
        # Several brokers of one host are given the same key.
        return None if configured is None else Path(configured) / f"broker-{self.node_id}"

    def _registered_epoch(self) -> BrokerEpoch | None:
        return None if self._lifecycle is None else self._lifecycle.broker_epoch

    def _broker_epoch(self) -> BrokerEpoch:
        """Return the broker epoch as requests carry it, -1 before the registration."""
        broker_epoch = self._registered_epoch()
        return -1 if broker_epoch is None else broker_epoch

    def _enter(self, state: BrokerState) -> None:
        if state is not self._state:
            self._state = state
            self._on_state(state)


async def _follow(quorum: QuorumMember, link: ControllerLink, directory: LogDirectory) -> None:
    """Follow the metadata quorum; if that fails for the disk, nothing else is written there either."""
    try:
        await until_first_ends(quorum.follow(), link.run())
    except KafkaError as error:
        if is_disk_error(error):
            directory.fail(error)
            raise BrokerDiskError(f"the metadata log in {directory.path}: {error}") from error
        raise
