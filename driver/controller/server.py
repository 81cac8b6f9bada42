"""The controller's thread: an event loop with a listener, the metadata log and the machine that decides.

Nothing is decided here. The loop hands requests, ticks and departures to the `Controller` and sees to it
that what it decides is on disk before anybody is told.

If the disk fails, the controller stops answering and stays stopped: `failure` says why, and every waiting
call raises it. Whoever answered on would tell of changes that a restart forgets.
"""

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from driver.controller.commits import Commits
from driver.controller.controller import Controller
from driver.controller.departures import Departures
from driver.controller.handlers import Handlers, now_ms
from driver.controller.metadata_fetches import MetadataFetches
from driver.controller.metadata_log import MetadataLog
from sparklog.config import BrokerConfig
from sparklog.metadata.features import SUPPORTED_FEATURES
from sparklog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage
from sparklog.types import BrokerEpoch, BrokerId
from sparklog.wire.connection_quotas import ConnectionQuotas
from sparklog.wire.requests import Features
from sparklog.wire.server import Listener

__all__ = ["ControllerServer"]

TICK_MS: Final = 50
"""How often sessions, waiting fetches and leader balance are looked at."""

logger = logging.getLogger(__name__)


class ControllerServer:
    """The cluster's controller in a thread of its own.

    All methods may be called from any thread. Order: `start`, then anything, then `stop`.
    """

    def __init__(
        self, cluster_id: str, config: BrokerConfig, directory: Path, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._cluster_id = cluster_id
        self._config = config
        self._directory = directory
        self._host = host
        self._port = port
        self._changed = threading.Condition()
        self._image: MetadataImage = EMPTY_IMAGE
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="sparklog controller", daemon=True)
        self._running: _Running | None = None

    def start(self) -> None:
        """Open the metadata log and listen; return when requests are answered.

        Raises:
            DirectoryLockedError: another process holds the directory.
            KafkaError: the directory is another cluster's, or cannot be written.
            OSError: the address cannot be listened on.
        """
        self._thread.start()
        self._started.wait()
        self._raise_failure()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the listener."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def image(self) -> MetadataImage:
        """The newest committed state of the cluster."""
        return self._image

    @property
    def failure(self) -> BaseException | None:
        """Why the controller stopped by itself, if it did."""
        return self._failure

    def wait_until_unfenced(self, broker_count: int, timeout_s: float) -> None:
        """Return when at least `broker_count` brokers are unfenced.

        Raises:
            TimeoutError: they are not within `timeout_s`; the message says who is registered.
            BaseException: the controller's failure.
        """

        def is_over() -> bool:
            return self._failure is not None or len(_unfenced(self._image)) >= broker_count

        with self._changed:
            in_time = self._changed.wait_for(is_over, timeout_s)
        self._raise_failure()
        if not in_time:
            image = self._image
            raise TimeoutError(
                f"{len(_unfenced(image))} of {broker_count} brokers are unfenced after {timeout_s:g} s; "
                f"registered are {sorted(image.brokers) or 'none'}"
            )

    def report_broker_lost(self, broker_id: BrokerId) -> None:
        """Take note that the broker's task or executor has ended: it is probed, and fenced if it refuses."""
        self._call(lambda running: running.departures.suspect(broker_id))

    def shut_down_broker(self, broker_id: BrokerId, reason: str) -> None:
        """Have one broker leave while the cluster goes on; returns before it has."""
        self._call(
            lambda running: running.handlers.decide(running.controller.shut_down_broker(broker_id, reason))
        )

    def shut_down_brokers(self) -> None:
        """From now on every heartbeat is answered with should_shut_down."""
        self._call(lambda running: running.controller.shut_down_brokers())

    def stop(self) -> None:
        """Close listener and log, end the thread. Safe to call twice, and before `start`."""
        if self._thread.is_alive():
            self._call(lambda running: running.stop_requested.set())
            self._thread.join()

    def _call(self, action: Callable[["_Running"], None]) -> None:
        running = self._running
        if running is None:
            return
        try:
            running.loop.call_soon_threadsafe(action, running)
        except RuntimeError:
            logger.debug("The controller's loop has ended already")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # of a thread: whoever waits for it must see it
            self._fail(error)
        finally:
            self._running = None
            self._started.set()

    async def _run(self) -> None:
        log = await asyncio.to_thread(MetadataLog.open, self._directory, self._cluster_id, self._config)
        try:
            await self._serve(log)
        finally:
            await asyncio.to_thread(log.close, clean=self._failure is None)

    async def _serve(self, log: MetadataLog) -> None:
        image = await asyncio.to_thread(_replayed, log)
        controller = Controller(self._cluster_id, self._config, uuid.uuid4, image)
        fetches = MetadataFetches(self._cluster_id, log)

        def committed(image: MetadataImage) -> None:
            with self._changed:
                self._image = image
                self._changed.notify_all()
            fetches.committed()

        commits = Commits(controller, log, committed, self._fail)

        def broker_gone(broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
            handlers.decide(controller.broker_gone(broker_id, broker_epoch))

        departures = Departures(self._config.inter_broker_listener, lambda: controller.image, broker_gone)
        handlers = Handlers(
            self._cluster_id, self._config, controller, commits, fetches, departures, lambda: self._image
        )
        controller.replay((), log.append_leader_change(), log.leader_epoch)
        handlers.decide(controller.bootstrap())
        await commits.drain()
        self._raise_failure()
        listener = await Listener.start(
            self._host,
            self._port,
            handlers.table(),
            name="controller",
            features=self._features,
            settings=self._config.socket_settings(),
            quotas=ConnectionQuotas(max_connections=self._config.max_connections),
        )
        self._port = listener.port
        handlers.endpoint = Endpoint("CONTROLLER", self._host, self._port)
        logger.info(
            "The controller of cluster %s listens on %s, leader epoch %d, metadata offset %d",
            self._cluster_id,
            self.bootstrap_servers,
            log.leader_epoch,
            log.high_watermark,
        )
        running = _Running(asyncio.get_running_loop(), asyncio.Event(), controller, handlers, departures)
        self._running = running
        self._started.set()
        try:
            await self._tick_until_stopped(running, fetches)
        finally:
            await departures.close()
            await listener.close()
            await commits.drain()

    async def _tick_until_stopped(self, running: "_Running", fetches: MetadataFetches) -> None:
        while not running.stop_requested.is_set():
            while self._failure is None and (decision := running.controller.tick(now_ms())).records:
                running.handlers.decide(decision)
            fetches.expire(now_ms())
            try:
                async with asyncio.timeout(TICK_MS / 1000):
                    await running.stop_requested.wait()
            except TimeoutError:
                continue

    def _features(self) -> Features:
        image = self._image
        return Features(
            supported=SUPPORTED_FEATURES,
            finalized=dict(image.features),
            finalized_epoch=-1 if image.offset is None else image.offset,
        )

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
        if self._running is not None:
            self._running.stop_requested.set()


class _Running(NamedTuple):
    """What there is while the loop runs; to be used on the loop."""

    loop: asyncio.AbstractEventLoop
    stop_requested: asyncio.Event
    controller: Controller
    handlers: Handlers
    departures: Departures


def _unfenced(image: MetadataImage) -> list[BrokerId]:
    return [broker_id for broker_id, registration in image.brokers.items() if not registration.fenced]


def _replayed(log: MetadataLog) -> MetadataImage:
    """Return the image that the log adds up to. Blocks."""
    image = EMPTY_IMAGE
    for batch in log.replay():
        image, _ = image.apply(batch.records, batch.last_offset, batch.leader_epoch)
    return image
