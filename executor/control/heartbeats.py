"""Registration and heartbeats, from a thread of their own: long turns of the loop do not delay them.

On a machine short of processors the broker's loop turns slowly, and a heartbeat takes three turns: the timer,
the request, the answer. So the lifecycle is stepped on another loop, in another thread, over another
connection. The broker's loop feeds it and asks it for the lease, under a lock.

Such heartbeats prove that the process lives, not its loop. So with every step the thread looks at the turns
of the broker's loop, which is not woken for it, and reports to the lifecycle when one has lasted for the
session's time. Time in which this thread did not run either does not count: a starved machine is no reason to
give leaderships away. A loop that waits for events is looked at again with the next heartbeat, one in a turn
sooner.

Order for the caller: create it; `run` once, on the broker's loop. Every other method is for any thread.

Source: Kafka's BrokerLifecycleManager, which has an event queue, a thread and a channel of its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final
from uuid import UUID

from sparklog.executor.control.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.executor.control.machine.broker_lifecycle import (
    LINK_POLL_MS,
    LOOP_CHECK_MS,
    Ask,
    BrokerLifecycle,
    BrokerState,
    Leave,
    Wait,
)
from sparklog.executor.control.machine.silence import Silence
from sparklog.executor.loop.concurrency import until_first_ends
from sparklog.node.clocks import monotonic_ms
from sparklog.node.loop.turn_loop import TurnLoop
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerEpoch

_THREAD_NAME: Final = "sparklog heartbeats"

logger = logging.getLogger(__name__)


class Heartbeats:
    """The lifecycle of one incarnation, and the thread that steps it."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        link: ControllerLink,
        *,
        session_timeout_ms: int,
        stop_asked: Callable[[], bool],
        on_state: Callable[[BrokerState], None],
    ) -> None:
        """Step `lifecycle` over `link`, which nothing else uses; `on_state` runs on the broker's loop."""
        self._lifecycle = lifecycle
        self._link = link
        # As Kafka's channel for heartbeats (KAFKA-14392): two attempts fit into a session.
        self._request_timeout_ms = session_timeout_ms // 2
        self._session_timeout_ms = session_timeout_ms
        self._stop_asked = stop_asked
        self._on_state = on_state
        self._lock = Lock()
        """Protects the lifecycle and the fields below."""
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._has_ended = False
        self._is_answered = True
        """Whether the controller answered the last request."""
        self._wake = asyncio.Event()
        self._end = asyncio.Event()
        link.when_connected(self._wake.set)
        link.when_lost(self._wake.set)

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """The epoch of the registration; None before."""
        return self._lifecycle.broker_epoch

    @property
    def incarnation_id(self) -> UUID:
        return self._lifecycle.identity.incarnation_id

    @property
    def cluster_ended(self) -> bool:
        return self._lifecycle.cluster_ended

    @property
    def failure(self) -> KafkaError | None:
        """The error that ended the broker, None if it was asked to stop."""
        return self._lifecycle.failure

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this broker may lead; True before the registration, when it leads nothing."""
        # Without the lock a renewal could come between the two values that make up a lease.
        with self._lock:
            return self._lifecycle.broker_epoch is None or self._lifecycle.holds_lease(now_ms)

    def metadata_applied(self, image: MetadataImage, *, has_undeclared_damage: bool) -> None:
        lifecycle = self._lifecycle
        registration = image.brokers.get(lifecycle.identity.node_id)
        with self._lock:
            lifecycle.has_undeclared_damage = has_undeclared_damage
            registered_epoch = None if registration is None else registration.broker_epoch
            lifecycle.metadata_applied(image.offset, registered_epoch, monotonic_ms())
        self.wake()

    def metadata_fetched(self, sent_ms: int) -> None:
        """Note that a fetch of the metadata log, sent at `sent_ms`, leaves nothing to apply."""
        with self._lock:
            self._lifecycle.metadata_fetched(sent_ms)

    def directory_failed(self, directory_id: UUID, *, is_last: bool) -> None:
        """Note that a log directory is offline; `is_last`: the broker cannot go on without it."""
        with self._lock:
            self._lifecycle.directory_failed(directory_id, monotonic_ms(), is_last=is_last)
        self.wake()

    def wake(self) -> None:
        self._call(self._wake.set)

    async def run(self, on_registered: Callable[[BrokerEpoch], Awaitable[None]]) -> None:
        """Register, send heartbeats and follow the answers, until it is time to shut down.

        Raises:
            Exception: an error of `on_registered`, which is awaited on this loop.
        """
        loop = asyncio.get_running_loop()
        registered: asyncio.Future[BrokerEpoch] = loop.create_future()
        with ThreadPoolExecutor(1, _THREAD_NAME) as thread:
            stepping = _Stepping(loop, registered, Silence(self._session_timeout_ms, monotonic_ms()))
            beating = loop.run_in_executor(thread, asyncio.run, self._beat(stepping))
            try:
                either: list[asyncio.Future[Any]] = [beating, registered]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if registered.done():
                    await on_registered(registered.result())
                await asyncio.shield(beating)
            finally:
                with self._lock:
                    self._has_ended = True
                self._call(self._end.set)
                await asyncio.gather(beating, return_exceptions=True)

    def _call(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._thread_loop is not None:
                self._thread_loop.call_soon_threadsafe(callback)

    async def _beat(self, stepping: "_Stepping") -> None:
        with self._lock:
            if self._has_ended:
                return
            self._thread_loop = asyncio.get_running_loop()
        try:
            await until_first_ends(self._link.run(), self._step(stepping), self._end_requested())
        finally:
            with self._lock:
                self._thread_loop = None

    async def _end_requested(self) -> None:
        await self._end.wait()

    async def _step(self, stepping: "_Stepping") -> None:
        lifecycle, link = self._lifecycle, self._link
        while True:
            self._wake.clear()
            now_ms = monotonic_ms()
            stands_still = stepping.loop_stands_still(now_ms)
            with self._lock:
                step = lifecycle.step(
                    now_ms,
                    stop_asked=self._stop_asked(),
                    is_connected=link.is_connected,
                    unreachable_ms=link.unreachable_ms,
                    is_refused=link.is_refused,
                    loop_stands_still=stands_still,
                )
                state, was_registered = lifecycle.state, lifecycle.broker_epoch is not None
            stepping.tell(self._on_state, state)
            match step:
                case Leave():
                    return
                case Wait(until_ms):
                    pause_ms = min(until_ms - now_ms, self._session_timeout_ms // 4)
                    if not link.is_connected:
                        pause_ms = min(pause_ms, LINK_POLL_MS)
                    elif not stepping.loop_waits:
                        pause_ms = min(pause_ms, LOOP_CHECK_MS)
                    stepping.pauses(pause_ms)
                    await self._pause(pause_ms)
                case Ask(request):
                    stepping.pauses(LOOP_CHECK_MS)
                    response = await self._response(request)
                    with self._lock:
                        lifecycle.answered(response, monotonic_ms())
                    if lifecycle.broker_epoch is not None and not was_registered:
                        logger.info("Registered with broker epoch %d", lifecycle.broker_epoch)
                        stepping.tell_registered(lifecycle.broker_epoch)

    async def _pause(self, pause_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()

    async def _response(self, request: Any) -> Any:
        try:
            response = await self._link.request(request, self._request_timeout_ms)
        except ControllerUnreachableError as error:
            # Once for each silence of the controller: attempts follow each other in tenths of a second.
            logger.log(logging.WARNING if self._is_answered else logging.DEBUG, "%s", error)
            self._is_answered = False
            return None
        self._is_answered = True
        return response


class _Stepping:
    """The thread's view of the broker's loop: its calls into it, and whether the loop turns."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registered: "asyncio.Future[BrokerEpoch]",
        silence: Silence,
    ) -> None:
        self._loop = loop
        self._registered = registered
        self._silence = silence
        self._turn_began_s: float | None = None
        """The begin of the turn at the last look."""
        self._stands_still = False
        self._state: BrokerState | None = None

    @property
    def loop_waits(self) -> bool:
        """Whether the loop waited for events at the last look."""
        return self._turn_began_s is None

    def pauses(self, pause_ms: int) -> None:
        """Note the time to the next look, at most."""
        self._silence.pauses(pause_ms)

    def loop_stands_still(self, now_ms: int) -> bool:
        """Look at the loop's turn; return whether it has lasted for the session's time."""
        # Loops of tests may be of another kind, which shows nothing.
        began_s = self._loop.turn_began_s if isinstance(self._loop, TurnLoop) else None
        if began_s is None or began_s != self._turn_began_s:
            self._silence.heard(now_ms)
        self._turn_began_s = began_s
        stands_still = self._silence.is_too_long(now_ms)
        if stands_still is not self._stands_still:
            self._stands_still = stands_still
            if stands_still:
                logger.error("The broker's event loop is stuck: the broker asks to be fenced")
            else:
                logger.warning("The broker's event loop turns again")
        return stands_still

    def tell(self, on_state: Callable[[BrokerState], None], state: BrokerState) -> None:
        if state is not self._state:
            self._state = state
            self._loop.call_soon_threadsafe(on_state, state)

    def tell_registered(self, broker_epoch: BrokerEpoch) -> None:
        self._loop.call_soon_threadsafe(self._registered.set_result, broker_epoch)
