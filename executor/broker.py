"""One broker: opens its directories, registers, follows the metadata log, serves, and leaves in order.

The order of a start: lock the directories and load the logs (off the loop), bind the listeners (their ports
go into the registration), register, replay the metadata log up to the own registration, then ask to be
unfenced and answer clients. Connections that come earlier wait in the listen queue, so that nobody is told of
an empty cluster.

The order of an end: hand leaderships over (controlled shutdown), stop listening, flush and close the logs,
write the clean-shutdown markers, give up the locks. A broker that was refused or replaced, or whose metadata
cannot be replayed, has nothing to hand over and does the rest.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from executor.auto_topic_creation import AutoTopicCreation
from executor.controller_link import ControllerLink, ControllerUnreachableError
from executor.directories import (
    close_directories,
    directory_ids,
    open_directories,
    previous_broker_epoch,
)
from executor.forwarding import Forwarder
from executor.handlers.apis import BrokerServices, broker_apis
from executor.isr_proposals import IsrProposals
from executor.lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState
from executor.loss_watch import LossWatch
from executor.metadata_follower import MetadataFollower
from executor.producer_ids import ProducerIds
from executor.replication.replicas import Replicas
from sparklog.config import BrokerConfig
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.features import SUPPORTED_FEATURES
from sparklog.metadata.image import EMPTY_IMAGE, Endpoint, FeatureRange, MetadataImage
from sparklog.storage import Log, LogDirectory
from sparklog.types import CLUSTER_METADATA_TOPIC, BrokerEpoch, BrokerId
from sparklog.wire.connection_quotas import ConnectionQuotas
from sparklog.wire.requests import Features
from sparklog.wire.server import Listener

__all__ = ["Broker", "BrokerState"]

REPLICAS_TICK_MS: Final = 200
LIFECYCLE_POLL_MS: Final = 100
"""How often a broker looks at the clock while it waits for something else."""
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 10_000

logger = logging.getLogger(__name__)


def _now_ms() -> int:
    """Milliseconds of a clock that only goes forward; for intervals, not for timestamps."""
    return time.monotonic_ns() // 1_000_000


class Broker:
    """A Kafka broker on the running asyncio loop.

    Listeners on every interface are advertised under `host_name`, by which others reach this host.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
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
        self._cluster_id = cluster_id
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
        self._image: MetadataImage = EMPTY_IMAGE
        self._lifecycle: BrokerLifecycle | None = None

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
        return self._lifecycle is not None and self._lifecycle.cluster_ended

    @property
    def stop_reason(self) -> str | None:
        """What `stop` was given; None if it was not called."""
        return self._stop_reason

    def stop(self, reason: str) -> None:
        """Begin a controlled shutdown; safe from any thread and from a signal handler; idempotent."""
        if self._stop_reason is None:
            self._stop_reason = reason
            logger.info("stopping: %s", reason)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Start, serve until told to leave, and leave; returns after a clean shutdown.

        Raises:
            ForeignDirectoryError: (storage) a directory is another's.
            DirectoryLockedError: (storage) a live process holds one; nothing has happened yet, and `run` may
                be called again.
            BrokerRefusedError: the controller will not have this broker, whatever it retries.
            BrokerReplacedError: another incarnation has this broker's place.
            KafkaError: the metadata log cannot be replayed, or a disk failed at the start.
        """
        self._loop = asyncio.get_running_loop()
        self._enter(BrokerState.STARTING)
        directories = await asyncio.to_thread(open_directories, self._paths, self._cluster_id, self.node_id)
        try:
            await self._run_on(directories)
        finally:
            await asyncio.to_thread(close_directories, directories)
            self._enter(BrokerState.NOT_RUNNING)

    async def _run_on(self, directories: list[LogDirectory]) -> None:
        config, (host, port) = self._config, self._controller
        async with contextlib.AsyncExitStack() as leaving:
            link = ControllerLink(host, port, f"broker-{self.node_id}")
            link.on_connected = self._wake.set
            metadata_link = ControllerLink(host, port, f"broker-{self.node_id}-metadata", name="metadata log")
            proposals = IsrProposals(link, self.node_id, self._broker_epoch)
            leaving.push_async_callback(proposals.close)
            creation = AutoTopicCreation(link, config.request_timeout_ms)
            leaving.push_async_callback(creation.close)
            metadata_log = await asyncio.to_thread(self._open_metadata_log)
            leaving.push_async_callback(asyncio.to_thread, metadata_log.close)
            losses = LossWatch(asyncio.get_running_loop())
            replicas = Replicas(
                self.node_id,
                lambda: None if self._lifecycle is None else self._lifecycle.broker_epoch,
                directories,
                config,
                proposals,
                losses,
                asyncio.get_running_loop(),
                inter_broker_listener_name=config.inter_broker_listener,
            )
            await replicas.start()
            leaving.push_async_callback(self._shut_down, replicas, directories)
            services = BrokerServices(
                cluster_id=self._cluster_id,
                node_id=self.node_id,
                config=config,
                image=lambda: self._image,
                replicas=replicas,
                losses=losses,
                forwarder=Forwarder(link, config.request_timeout_ms),
                auto_topic_creation=creation,
                producer_ids=ProducerIds(link, self.node_id, self._broker_epoch),
            )
            listeners = await self._listen(services, leaving)
            lifecycle = self._lifecycle = self._new_lifecycle(directories)
            metadata_directory = directories[0].meta
            assert metadata_directory is not None, "open_directories formats new directories"

            async def publish(image: MetadataImage, delta: MetadataDelta) -> None:
                self._image = image
                losses.image_changed(image)
                await replicas.apply_metadata(image, delta)
                registration = image.brokers.get(self.node_id)
                registered_epoch = None if registration is None else registration.broker_epoch
                lifecycle.metadata_applied(image.offset, registered_epoch, _now_ms())
                for listener in listeners:
                    listener.accept_connections()
                self._wake.set()

            follower = MetadataFollower(
                metadata_log,
                metadata_link,
                node_id=self.node_id,
                directory_id=metadata_directory.directory_id,
                broker_epoch=lambda: lifecycle.broker_epoch,
                publish=publish,
                now_ms=_now_ms,
                on_caught_up=lifecycle.metadata_fetched,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
            )
            await _until_first_ends(
                self._live(lifecycle, link, follower),
                follower.run(),
                link.run(),
                metadata_link.run(),
                self._tick(replicas, lifecycle),
            )
            self._enter(BrokerState.SHUTTING_DOWN)
        if lifecycle.failure is not None:
            raise lifecycle.failure

    async def _live(
        self, lifecycle: BrokerLifecycle, link: ControllerLink, follower: MetadataFollower
    ) -> None:
        """Register, beat, and do what the answers say, until it is time to shut down."""
        timeout_ms = self._config.controller_quorum_request_timeout_ms
        while True:
            now_ms = _now_ms()
            self._wake.clear()
            if self._stop_reason is not None:
                lifecycle.stop_asked(now_ms)
            lifecycle.tick(now_ms)
            lifecycle.controller_gone(link.unreachable_ms)
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
                lifecycle.request_failed(_now_ms())
                continue
            if lifecycle.broker_epoch is None:
                lifecycle.registration_answered(response.error_code, response.broker_epoch, _now_ms())
                if lifecycle.broker_epoch is not None:
                    logger.info("registered with broker epoch %d", lifecycle.broker_epoch)
                    await follower.registered()
            else:
                lifecycle.heartbeat_answered(
                    response.error_code, response.is_fenced, response.should_shut_down, _now_ms()
                )

    async def _tick(self, replicas: Replicas, lifecycle: BrokerLifecycle) -> None:
        """Let time pass for the replicas; they lead only while the lease holds."""
        leads = True
        while True:
            await asyncio.sleep(REPLICAS_TICK_MS / 1000)
            now_ms = _now_ms()
            may_lead = lifecycle.holds_lease(now_ms)
            if lifecycle.broker_epoch is not None and may_lead is not leads:
                leads = may_lead
                if leads:
                    replicas.resume_leading()
                else:
                    replicas.stop_leading()
            replicas.tick(now_ms)

    async def _shut_down(self, replicas: Replicas, directories: Sequence[LogDirectory]) -> None:
        await replicas.shutdown()
        if replicas.offline_partitions:
            logger.error("no clean shutdown: the logs of %s failed", replicas.offline_partitions)
            return
        broker_epoch = None if self._lifecycle is None else self._lifecycle.broker_epoch
        for directory in directories:
            await asyncio.to_thread(directory.write_clean_shutdown, broker_epoch)

    async def _listen(self, services: BrokerServices, leaving: contextlib.AsyncExitStack) -> list[Listener]:
        config = self._config
        listeners: list[Listener] = []
        bound: list[Endpoint] = []
        quotas = ConnectionQuotas(
            max_connections=config.max_connections, max_connections_per_ip=config.max_connections_per_ip
        )
        for endpoint in config.listeners:
            listener = await Listener.start(
                endpoint.host,
                endpoint.port,
                broker_apis(services, endpoint.name),
                name=endpoint.name,
                features=self._features,
                settings=config.socket_settings(),
                quotas=quotas,
                reserved=len(config.listeners) > 1 and endpoint.name == config.inter_broker_listener,
                accepting=False,
            )
            leaving.push_async_callback(listener.close)
            listeners.append(listener)
            bound.append(replace(endpoint, port=listener.port))
        self.endpoints = config.advertised_endpoints(tuple(bound), self._host_name)
        return listeners

    def _features(self) -> Features:
        image = self._image
        return Features(
            supported=SUPPORTED_FEATURES,
            finalized=dict(image.features),
            finalized_epoch=-1 if image.offset is None else image.offset,
        )

    def _new_lifecycle(self, directories: Sequence[LogDirectory]) -> BrokerLifecycle:
        config = self._config
        identity = BrokerIdentity(
            cluster_id=self._cluster_id,
            node_id=self.node_id,
            incarnation_id=uuid4(),
            rack=self._rack,
            listeners=self.endpoints,
            features=tuple((name, FeatureRange(*levels)) for name, levels in SUPPORTED_FEATURES.items()),
            log_directories=directory_ids(directories),
            previous_broker_epoch=previous_broker_epoch(directories),
        )
        return BrokerLifecycle(
            identity,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            controlled_shutdown_timeout_ms=(
                CONTROLLED_SHUTDOWN_TIMEOUT_MS if config.controlled_shutdown_enable else 0
            ),
            now_ms=_now_ms(),
        )

    def _open_metadata_log(self) -> Log:
        configured = self._config.metadata_log_dir
        # Several brokers of one host are given the same key.
        parent = self._paths[0] if configured is None else Path(configured) / f"broker-{self.node_id}"
        return Log.open(
            parent / f"{CLUSTER_METADATA_TOPIC}-0",
            self._config.metadata_log_config(),
            now_ms=time.time_ns() // 1_000_000,
        )

    def _broker_epoch(self) -> BrokerEpoch:
        """Return the broker epoch as requests carry it, -1 before the registration."""
        lifecycle = self._lifecycle
        return -1 if lifecycle is None or lifecycle.broker_epoch is None else lifecycle.broker_epoch

    def _enter(self, state: BrokerState) -> None:
        if state is not self._state:
            self._state = state
            self._on_state(state)


async def _until_first_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, then cancel the others.

    Raises:
        KafkaError: what the first one to end raised.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
