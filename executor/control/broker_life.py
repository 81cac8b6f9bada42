"""The lifecycle of a broker on its event loop: wait for a leader, register, send heartbeats, shut down.

`BrokerLifecycle` decides from the registration on, stepped by a thread of its own (`Heartbeats`); before that
the broker only waits. Order for the caller: `begin`; `lasts_until` for each step before the registration;
`live`. The return of `live`, or False from `lasts_until`, means that it is time to shut down. It subscribes
to the metadata after the replicas, since it reports to the controller the offset that they have applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.heartbeats import Heartbeats
from sparklog.executor.control.machine.broker_lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState
from sparklog.executor.loop.concurrency import until_first_ends
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.features import SUPPORTED_FEATURES
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import FeatureRange
from sparklog.node.storage import LogDirectory
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId

CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 10_000

logger = logging.getLogger(__name__)


class BrokerLife:
    """The lifecycle of one broker; belongs to its event loop, except for `stop`."""

    def __init__(
        self, node_id: BrokerId, config: BrokerConfig, on_state: Callable[[BrokerState], None]
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.stop_reason: str | None = None
        """The argument of `stop`; None before."""
        self._node_id = node_id
        self._config = config
        self._on_state = on_state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: ControllerLink | None = None
        self._stopping = asyncio.Event()
        self._is_abandoned = False
        """Whether the driver exited before it led."""
        self._heartbeats: Heartbeats | None = None
        self._has_undeclared_damage: Callable[[], bool] = lambda: False

    def begin(self, link: ControllerLink) -> None:
        """Start on the running loop; `link` leads to the controller."""
        self._loop = asyncio.get_running_loop()
        self._link = link
        if self.stop_reason is not None:
            self._stopping.set()
        self.enter(BrokerState.STARTING)

    def stop(self, reason: str) -> None:
        """Begin a controlled shutdown; safe from any thread and from a signal handler; idempotent."""
        if self.stop_reason is None:
            self.stop_reason = reason
            logger.info("Stopping: %s", reason)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wake)
            self._loop.call_soon_threadsafe(self._stopping.set)

    def enter(self, state: BrokerState) -> None:
        if state is not self.state:
            self.state = state
            self._on_state(state)

    @property
    def cluster_ended(self) -> bool:
        """Whether the broker shuts down with the whole cluster; otherwise it is restarted."""
        return self._is_abandoned or (self._heartbeats is not None and self._heartbeats.cluster_ended)

    @property
    def failure(self) -> KafkaError | None:
        """The error that ended the broker, None if it was asked to stop."""
        return None if self._heartbeats is None else self._heartbeats.failure

    def raise_failure(self) -> None:
        """Raise the error that ended the broker, if there was one.

        Raises:
            KafkaError: the failure.
        """
        if (failure := self.failure) is not None:
            raise failure

    @property
    def _known_link(self) -> ControllerLink:
        assert self._link is not None, "it has begun"
        return self._link

    def broker_epoch(self) -> BrokerEpoch | None:
        """Return the epoch of the registration; None before."""
        return None if self._heartbeats is None else self._heartbeats.broker_epoch

    def incarnation_id(self) -> UUID | None:
        """Return the incarnation id of this process's registration; None before."""
        heartbeats = self._heartbeats
        if heartbeats is None or heartbeats.broker_epoch is None:
            return None
        return heartbeats.incarnation_id

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this broker may lead; True before the registration, when it leads nothing."""
        return self._heartbeats is None or self._heartbeats.holds_lease(now_ms)

    async def lasts_until(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Wait for `coroutine` to end; return False if the broker has to shut down first.

        Raises:
            Exception: an error of `coroutine`.
        """
        await until_first_ends(coroutine, self._stop_asked(), self._driver_gone())
        return not self._is_abandoned and self.stop_reason is None

    async def _stop_asked(self) -> None:
        await self._stopping.wait()

    async def _driver_gone(self) -> None:
        await self._known_link.gone()
        logger.info("Shutting down: the driver has exited before it led")
        self._is_abandoned = True

    def new_incarnation(
        self,
        cluster_id: str,
        listeners: Sequence[Endpoint],
        log_directories: Sequence[UUID],
        previous_broker_epoch: BrokerEpoch | None,
    ) -> BrokerIdentity:
        return BrokerIdentity(
            cluster_id=cluster_id,
            node_id=self._node_id,
            incarnation_id=uuid4(),
            rack=self._config.broker_rack,
            listeners=listeners,
            features=tuple((name, FeatureRange(*levels)) for name, levels in SUPPORTED_FEATURES.items()),
            log_directories=log_directories,
            previous_broker_epoch=previous_broker_epoch,
        )

    async def live(
        self,
        identity: BrokerIdentity,
        on_registered: Callable[[BrokerEpoch], Awaitable[None]],
        has_undeclared_damage: Callable[[], bool],
    ) -> None:
        """Register, send heartbeats and follow the answers, until it is time to shut down."""
        config, link = self._config, self._known_link
        self._has_undeclared_damage = has_undeclared_damage
        lifecycle = BrokerLifecycle(
            identity,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            controlled_shutdown_timeout_ms=(
                CONTROLLED_SHUTDOWN_TIMEOUT_MS if config.controlled_shutdown_enable else 0
            ),
            now_ms=monotonic_ms(),
        )
        self._heartbeats = Heartbeats(
            lifecycle,
            link.sibling(f"broker-{self._node_id}-heartbeats", "controller, for heartbeats"),
            session_timeout_ms=config.broker_session_timeout_ms,
            stop_asked=lambda: self.stop_reason is not None,
            on_state=self.enter,
        )
        await self._heartbeats.run(on_registered)

    def wake(self) -> None:
        """Send a heartbeat soon: there may be news for the controller."""
        if self._heartbeats is not None:
            self._heartbeats.wake()

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        assert self._heartbeats is not None, "the first image has the registration in it"
        self._heartbeats.metadata_applied(image, has_undeclared_damage=self._has_undeclared_damage())

    def caught_up(self, sent_ms: int) -> None:
        """Note that a fetch of the metadata log, sent at `sent_ms`, leaves nothing to apply."""
        if self._heartbeats is not None:
            self._heartbeats.metadata_fetched(sent_ms)

    def directory_failed(self, directory: LogDirectory, is_last: bool) -> None:
        """Note that a log directory is offline; `is_last`: the broker cannot go on without it."""
        if self._heartbeats is not None and directory.meta is not None:
            self._heartbeats.directory_failed(directory.meta.directory_id, is_last=is_last)

    async def shut_down(
        self,
        loading: "asyncio.Future[None]",
        close_logs: Callable[[], Awaitable[None]],
        write_clean_shutdown: Callable[[BrokerEpoch | None], None],
    ) -> None:
        """Close the logs once they are loaded, and write the clean-shutdown file of each directory.

        Logs that were not loaded are left unchanged, without such a file.
        """
        await asyncio.wait([loading])
        if loading.cancelled() or (error := loading.exception()) is not None:
            reason = "" if loading.cancelled() else f": {error}"
            logger.error("No clean shutdown: the logs were not loaded%s", reason)
            return
        await close_logs()
        await asyncio.to_thread(write_clean_shutdown, self.broker_epoch())
