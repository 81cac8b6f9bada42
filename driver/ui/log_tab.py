"""The tab's thread: once a second it gathers what is known, makes a status of it, and puts it into Spark's
UI.

Nobody waits for it. It begins beside a start that is over, reads the committed image that nobody changes,
asks the controller's loop one short question a second, and whatever it can't find out is left out. What is
shown only when somebody looks (a topic's partitions, with offsets from their leaders) is made when somebody
does.
"""

import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from driver.controller.active_controller import ActiveController
from driver.controller.machine.cluster_state import CONTROLLER_ID, MIN_IN_SYNC_REPLICAS
from driver.controller.quorum.description import QuorumDescription
from driver.controller.server import ControllerServer
from driver.spark.calls import JVM_GONE, answered
from driver.spark.janino import CompilationError, NoPlaceError
from driver.spark.rack import Rack
from driver.ui.broker_places import BrokerPlaces
from driver.ui.broker_stages import BrokerStages
from driver.ui.machine.events import CommittedImage, EventLog
from driver.ui.machine.history import SAMPLE_MS, History
from driver.ui.machine.samples import chart_figures
from driver.ui.machine.status import ControllerStatus, Event, QueryStatus, Status, VoterStatus, as_json
from driver.ui.machine.status_maker import Observation, make_status
from driver.ui.machine.topic_health import TopicHealth
from driver.ui.pages.html import Html
from driver.ui.pages.overview import Overview
from driver.ui.pages.sections import Shown
from driver.ui.pages.topics import topics_page
from driver.ui.progress_bar import UsersProgressBar
from driver.ui.query_listener import QueryListener
from driver.ui.spark_tab import OVERVIEW, AskedPage, SparkTab
from driver.ui.topic_pages import TopicPages
from sparklog.clocks import monotonic_ms, wall_clock_ms
from sparklog.config import BrokerConfig
from sparklog.metadata.image import MetadataImage
from sparklog.types import BrokerId

__all__ = ["LogTab"]

REFRESH_S: Final = 1.0
DETACH_WITHIN_S: Final = 2.0
MAX_IMAGES_BEHIND: Final = 200
"""Images that are not looked at yet; of more than these in a second, events may be missing."""

logger = logging.getLogger(__name__)


Part = TypeVar("Part")


class LogTab:
    """The tab of one cluster, from `start` to `stop`."""

    def __init__(
        self,
        context: SparkContext,
        config: BrokerConfig,
        controller: ControllerServer,
        racks: Sequence[Rack],
    ) -> None:
        self._context = context
        self._config = config
        self._controller = controller
        self._places = BrokerPlaces(context, racks)
        self._committed: deque[CommittedImage] = deque(maxlen=MAX_IMAGES_BEHIND)
        self._events = EventLog(controller.image)
        self._health = TopicHealth(lambda own: _min_insync_replicas(config, own))
        self._overview = Overview()
        self._history = History()
        self._sampled_ms: int | None = None
        self._stopping = threading.Event()
        self._tab: SparkTab | None = None
        self._thread = InheritableThread(target=self._run, name="sparklog tab", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        # Before Spark's part is there, so that nothing is missed that happens meanwhile.
        self._events = EventLog(self._controller.image)
        self._controller.subscribe(self._note_image)
        self._thread.start()

    def stop(self) -> None:
        """Have what was put into Spark taken away; waits a moment for that."""
        self._stopping.set()
        tab = self._tab
        if tab is not None:
            with contextlib.suppress(Py4JError):  # the application has ended, and its UI with it
                tab.wake()
        if self._thread.is_alive():
            self._thread.join(DETACH_WITHIN_S)

    def _run(self) -> None:
        bar = None
        with contextlib.ExitStack() as attached:
            try:
                bar = self._attached(UsersProgressBar.attach, "The console's progress bar shows brokers too")
                if bar is not None:
                    attached.callback(_quietly, bar.detach)
                tab = self._tab = self._attached(SparkTab.attach, "Spark's UI has no Log tab")
                if tab is not None:
                    attached.callback(_quietly, tab.detach)
                    queries = self._attached(QueryListener.attach, "The Log tab shows no streaming queries")
                    if queries is not None:
                        attached.callback(_quietly, queries.detach)
                    stages = self._attached(BrokerStages.attach, "The stages of brokers show no figures")
                    answered(lambda: self._serve(tab, queries, stages))
            except JVM_GONE as error:
                if not self._stopping.is_set():
                    logger.info("The Log tab is refreshed no more: %s", error)
            except Exception:  # a thread that only shows: the cluster goes on
                logger.exception("The Log tab is refreshed no more")
            self._controller.unsubscribe(self._note_image)
            self._committed.clear()
            if bar is not None:
                self._stopping.wait()

    def _attached(self, attach: Callable[[SparkContext], Part], without: str) -> Part | None:
        """Put something into Spark; None if this application has no place for it.

        Raises:
            Py4JError: the application ends.
        """
        try:
            return attach(self._context)
        except NoPlaceError as error:
            logger.debug("%s: %s", without, error)
        except CompilationError as error:
            logger.info("%s: %s", without, error)
        return None

    def _serve(self, tab: SparkTab, queries: QueryListener | None, stages: BrokerStages | None) -> None:
        topic_pages = TopicPages(self._config, self._controller.bootstrap_servers)
        try:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                self._refresh(tab, queries, stages)
                while (left_s := began_s + REFRESH_S - time.monotonic()) > 0 and not self._stopping.is_set():
                    asked = tab.next_asked(left_s)
                    if asked is not None:
                        html, data = self._page(asked, topic_pages)
                        tab.put(asked, html, _json(data))
        finally:
            topic_pages.close()

    def _note_image(self, image: MetadataImage, departure_reasons: Mapping[BrokerId, str]) -> None:
        self._committed.append(CommittedImage(image, departure_reasons))

    def _refresh(self, tab: SparkTab, queries: QueryListener | None, stages: BrokerStages | None) -> None:
        status = self._status(() if queries is None else queries.queries())
        now_ms = monotonic_ms()
        if self._sampled_ms is None or now_ms - self._sampled_ms >= SAMPLE_MS:
            self._sampled_ms = now_ms
            self._history.sample(chart_figures(status))
        if stages is not None:
            stages.show(status.brokers, now_ms)
        shown = Shown(status, self._history.charts)
        tab.put(OVERVIEW, self._overview.render(shown), _json(status))

    def _status(self, queries: tuple[QueryStatus, ...]) -> Status:
        now_ms = wall_clock_ms()
        # The order matters: the image that is looked at is not older than the last event.
        images = [self._committed.popleft() for _ in range(len(self._committed))]
        image = images[-1].image if images else self._controller.image
        self._health.look_at(image)
        for reason, rack in self._places.look():
            self._events.note(Event(at_ms=now_ms, kind="restarted", subject=rack, reason=reason))
        self._events.committed(images, now_ms)
        quorum = self._controller.ask(ActiveController.describe_quorum, REFRESH_S)
        observation = Observation(
            taken_ms=now_ms,
            cluster_id=self._controller.cluster_id or "",
            bootstrap_servers=self._controller.bootstrap_servers,
            missing=self._controller.missing,
            image=image,
            controller=None if quorum is None else _controller_status(quorum),
            places=self._places.places,
            figures={},
            queries=queries,
        )
        return make_status(observation, self._health, self._events)

    def _page(self, asked: AskedPage, topic_pages: TopicPages) -> tuple[Html, Any]:
        if asked.kind == "topics":
            return topics_page(self._health, asked.page)
        return topic_pages.page(self._controller.image, asked.name, asked.page)


def _quietly(detach: Callable[[], None]) -> None:
    with contextlib.suppress(Py4JError):  # the application has ended, and what was put into it
        detach()


def _controller_status(quorum: QuorumDescription) -> ControllerStatus:
    return ControllerStatus(
        node_id=CONTROLLER_ID,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        log_end_offset=quorum.log_end_offset,
        has_majority=quorum.has_majority,
        voters=tuple(
            VoterStatus(
                node_id=replica.key.node_id,
                is_voter=replica.is_voter,
                log_end_offset=replica.log_end_offset,
                lag=None
                if replica.log_end_offset is None
                else max(0, quorum.log_end_offset - replica.log_end_offset),
                last_fetch_age_ms=replica.last_fetch_age_ms,
            )
            for replica in quorum.replicas
        ),
    )


def _min_insync_replicas(config: BrokerConfig, own: Mapping[str, str]) -> int:
    minimum = own.get(MIN_IN_SYNC_REPLICAS)
    return config.min_insync_replicas if minimum is None else int(minimum)


def _json(value: Any) -> str:
    return json.dumps(as_json(value), separators=(",", ":"))
