"""A broker's life on its event loop: waits for a leader, registers, beats, and leaves when it is time.

`BrokerLifecycle` decides from the registration on; before it there is only the wait for others. Order for the
caller: `begin`; `lasts_until` whatever has to come first; `live`, whose return means that it is time to shut
down, as a False of `lasts_until` does. It subscribes to the metadata after the replicas, for what it tells
the controller of its progress is what they have acted on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from executor.control.controller_link import ControllerLink, ControllerUnreachableError
from executor.control.machine.broker_lifecycle import (
    LINK_POLL_MS,
    Ask,
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    Leave,
    Wait,
)
from executor.loop.concurrency import until_first_ends
from sparklog.clocks import monotonic_ms
from sparklog.config import BrokerConfig
from sparklog.endpoints import Endpoint
from sparklog.errors import KafkaError
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.features import SUPPORTED_FEATURES
from sparklog.metadata.image import FeatureRange, MetadataImage
from sparklog.storage import LogDirectory
from sparklog.types import BrokerEpoch, BrokerId

__all__ = ["BrokerLife"]

CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 10_000

logger = logging.getLogger(__name__)


class BrokerLife:
    """The life of one broker; belongs to its event loop, but for `stop`."""

    def __init__(
        self, node_id: BrokerId, config: BrokerConfig, on_state: Callable[[BrokerState], None]
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        """Where the broker is in its life."""
        self.stop_reason: str | None = None
        """What `stop` was given; None if it was not called."""
        self._node_id = node_id
        self._config = config
        self._on_state = on_state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: ControllerLink | None = None
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_abandoned = False
        """Whether the driver went before it led, so that nobody was left to wait for."""
        self._lifecycle: BrokerLifecycle | None = None
        self._has_undeclared_damage: Callable[[], bool] = lambda: False

    def begin(self, link: ControllerLink) -> None:
        """Start on the running loop; `link` leads to the controller."""
        self._loop = asyncio.get_running_loop()
        self._link = link
        link.when_connected(self.wake)
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
        """Take note of a state, and tell whoever wants to know."""
        if state is not self.state:
            self.state = state
            self._on_state(state)

    @property
    def cluster_ended(self) -> bool:
        """Whether it leaves because the whole cluster ends; without that it is wanted back."""
        return self._is_abandoned or (self._lifecycle is not None and self._lifecycle.cluster_ended)

    @property
    def failure(self) -> KafkaError | None:
        """Why the broker had to go, if it was not asked to."""
        return None if self._lifecycle is None else self._lifecycle.failure

    def raise_failure(self) -> None:
        """Tell whoever ran the broker why it ended, if that was not as it was told to.

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
        """Return the epoch of its registration; None before."""
        return None if self._lifecycle is None else self._lifecycle.broker_epoch

    def incarnation_id(self) -> UUID | None:
        """Return as what this process has registered; None before."""
        lifecycle = self._lifecycle
        is_registered = lifecycle is not None and lifecycle.broker_epoch is not None
        return lifecycle.identity.incarnation_id if lifecycle is not None and is_registered else None

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this broker may lead; before it is registered there is nothing that it could."""
        lifecycle = self._lifecycle
        return lifecycle is None or lifecycle.broker_epoch is None or lifecycle.holds_lease(now_ms)

    async def lasts_until(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Wait for `coroutine` to end; return whether it did before it was time to leave.

        Raises:
            Exception: what `coroutine` raised.
        """
        await until_first_ends(coroutine, self._stop_asked(), self._driver_gone())
        return not self._is_abandoned and self.stop_reason is None

    async def _stop_asked(self) -> None:
        await self._stopping.wait()

    async def _driver_gone(self) -> None:
        await self._known_link.gone()
        logger.info("Leaving: the driver has gone before it led")
        self._is_abandoned = True

    def new_incarnation(
        self,
        cluster_id: str,
        listeners: Sequence[Endpoint],
        log_directories: Sequence[UUID],
        previous_broker_epoch: BrokerEpoch | None,
    ) -> BrokerIdentity:
        """Return as what this broker registers."""
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
        """Register, beat, and do what the answers say, until it is time to shut down."""
        config, link = self._config, self._known_link
        self._has_undeclared_damage = has_undeclared_damage
        lifecycle = self._lifecycle = BrokerLifecycle(
            identity,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            controlled_shutdown_timeout_ms=(
                CONTROLLED_SHUTDOWN_TIMEOUT_MS if config.controlled_shutdown_enable else 0
            ),
            now_ms=monotonic_ms(),
        )
        while True:
            now_ms = monotonic_ms()
            self._wake.clear()
            step = lifecycle.step(
                now_ms,
                stop_asked=self.stop_reason is not None,
                is_connected=link.is_connected,
                unreachable_ms=link.unreachable_ms,
                is_refused=link.is_refused,
            )
            self.enter(lifecycle.state)
            match step:
                case Leave():
                    return
                case Wait(until_ms):
                    # The link may be lost meanwhile, which wakes nobody.
                    await self._pause(min(until_ms - now_ms, LINK_POLL_MS))
                case Ask(request):
                    was_registered = lifecycle.broker_epoch is not None
                    await self._ask(lifecycle, link, request)
                    if lifecycle.broker_epoch is not None and not was_registered:
                        logger.info("Registered with broker epoch %d", lifecycle.broker_epoch)
                        await on_registered(lifecycle.broker_epoch)

    async def _pause(self, pause_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()

    async def _ask(self, lifecycle: BrokerLifecycle, link: ControllerLink, request: Any) -> None:
        response = None
        try:
            response = await link.request(request, self._config.controller_quorum_request_timeout_ms)
        except ControllerUnreachableError as error:
            logger.warning("%s", error)
        lifecycle.answered(response, monotonic_ms())

    def wake(self) -> None:
        """There may be something to tell the controller."""
        self._wake.set()

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The replicas have acted on `image`."""
        lifecycle = self._lifecycle
        assert lifecycle is not None, "the first image has the registration in it"
        lifecycle.has_undeclared_damage = self._has_undeclared_damage()
        registration = image.brokers.get(lifecycle.identity.node_id)
        registered_epoch = None if registration is None else registration.broker_epoch
        lifecycle.metadata_applied(image.offset, registered_epoch, monotonic_ms())
        self.wake()

    def caught_up(self, sent_ms: int) -> None:
        """A fetch of the metadata log was sent at `sent_ms`, and its answer leaves nothing to apply."""
        if self._lifecycle is not None:
            self._lifecycle.metadata_fetched(sent_ms)

    def directory_failed(self, directory: LogDirectory, is_last: bool) -> None:
        """A log directory went offline; `is_last`: the broker cannot go on without it."""
        if self._lifecycle is not None and directory.meta is not None:
            self._lifecycle.directory_failed(directory.meta.directory_id, monotonic_ms(), is_last=is_last)
            self.wake()

    async def shut_down(
        self,
        loading: "asyncio.Future[None]",
        close_logs: Callable[[], Awaitable[None]],
        write_clean_shutdown: Callable[[BrokerEpoch | None], None],
    ) -> None:
        """Close the logs once they are loaded, and say in their directories that they were closed.

        Logs that were not loaded are left as they lie, and nobody vouches for them.
        """
        await asyncio.wait([loading])
        if loading.cancelled() or (error := loading.exception()) is not None:
            reason = "" if loading.cancelled() else f": {error}"
            logger.error("No clean shutdown: the logs were not loaded%s", reason)
            return
        await close_logs()
        await asyncio.to_thread(write_clean_shutdown, self.broker_epoch())
