"""What the tab's thread does: once a second it makes a status of what is known, and puts it into Spark's UI.

Nobody waits for it. It begins beside a start that is over, reads the committed image that nobody changes,
asks the controller's loop one short question a second, and whatever it can't find out is left out. What is
shown only when somebody looks (a topic's partitions, with offsets from their leaders; groups, transactions)
is made when somebody does.
"""

import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from pyspark import SparkContext

from driver.controller.active_controller import ActiveController
from driver.controller.machine.cluster_state import CONTROLLER_ID, MIN_IN_SYNC_REPLICAS
from driver.controller.quorum.description import QuorumDescription
from driver.controller.server import ControllerServer
from driver.spark.calls import JVM_GONE
from driver.spark.janino import CompilationError, NoPlaceError
from driver.spark.rack import Rack
from driver.ui.broker_places import BrokerPlaces
from driver.ui.broker_stages import BrokerStages
from driver.ui.group_pages import GroupPages
from driver.ui.machine.broker_figures import FigureReader
from driver.ui.machine.events import CommittedImage, EventLog
from driver.ui.machine.history import SAMPLE_MS, History
from driver.ui.machine.samples import chart_figures
from driver.ui.machine.status import ControllerStatus, Event, Status, VoterStatus, as_json
from driver.ui.machine.status_maker import Observation, make_status
from driver.ui.machine.throttles import Throttles
from driver.ui.machine.topic_health import TopicHealth
from driver.ui.pages.answers import failed_page
from driver.ui.pages.html import Html
from driver.ui.pages.overview import Overview
from driver.ui.pages.sections import Shown
from driver.ui.progress_bar import UsersProgressBar
from driver.ui.query_listener import QueryListener
from driver.ui.questions import Questions
from driver.ui.spark_tab import OVERVIEW, AskedPage, SparkTab
from driver.ui.topic_pages import TopicPages
from driver.ui.transaction_pages import TransactionPages
from sparklog.clocks import monotonic_ms, wall_clock_ms
from sparklog.config import BrokerConfig
from sparklog.metadata.image import MetadataImage
from sparklog.types import BrokerId

__all__ = ["LogTab"]

REFRESH_S: Final = 1.0
ANSWER_WITHIN_S: Final = 0.2
"""How long a refresh waits for the controller, and who looks at a page waits for the refresh."""

logger = logging.getLogger(__name__)


Part = TypeVar("Part")

MakePage: TypeAlias = Callable[[MetadataImage, AskedPage], tuple[Html, Any]]
"""Returns a page as HTML, and as what its JSON is made of."""


class LogTab:
    """The tab of one cluster; belongs to one thread, but for `wake`. Order: `attach`, `serve`, `close`."""

    def __init__(
        self,
        context: SparkContext,
        config: BrokerConfig,
        controller: ControllerServer,
        racks: Sequence[Rack],
        image: MetadataImage,
        committed: deque[tuple[MetadataImage, Mapping[BrokerId, str]]],
    ) -> None:
        """Tell what happens from `image` on; into `committed` another thread puts what comes after it."""
        self._context = context
        self._controller = controller
        self._committed = committed
        self._places = BrokerPlaces(context, racks)
        self._events = EventLog(image)
        self._health = TopicHealth(lambda image: _min_insync_replicas(config, image))
        self._figures = FigureReader()
        self._throttles = Throttles()
        self._questions = Questions(controller.bootstrap_servers, controller.insider)
        topics = TopicPages(config, self._health, self._questions)
        groups = GroupPages(self._questions)
        transactions = TransactionPages(controller.bootstrap_servers, self._questions)
        self._pages: Mapping[str, MakePage] = {
            "topics": topics.topics,
            "topic": topics.topic,
            "producers": transactions.producers,
            "groups": groups.groups,
            "group": groups.group,
            "transactions": transactions.transactions,
        }
        self._failures: dict[str, str] = {}
        """Why the last page of a kind could not be made."""
        self._overview = Overview()
        self._history = History()
        self._sampled_ms: int | None = None
        self._quorum: QuorumDescription | None = None
        self._tab: SparkTab | None = None
        self._queries: QueryListener | None = None
        self._stages: BrokerStages | None = None
        self._attached = contextlib.ExitStack()

    def attach(self) -> bool:
        """Put into Spark what there is a place for; return whether there is one for the tab.

        Raises:
            Py4JError: the application ends.
        """
        bar = self._put(UsersProgressBar.attach, "The console's progress bar shows brokers too")
        if bar is not None:
            self._attached.callback(_quietly, bar.detach)
        self._tab = self._put(SparkTab.attach, "Spark's UI has no Log tab")
        if self._tab is None:
            return False
        self._attached.callback(_quietly, self._tab.detach)
        self._queries = self._put(QueryListener.attach, "The Log tab shows no streaming queries")
        if self._queries is not None:
            self._attached.callback(_quietly, self._queries.detach)
        self._stages = self._put(BrokerStages.attach, "The stages of brokers show no figures")
        return True

    def serve(self, stopping: threading.Event) -> None:
        """Refresh the overview once a second, and make the pages that somebody looks at; may be called again.

        Raises:
            Py4JError: the application ends.
        """
        assert self._tab is not None, "attach comes first"
        while not stopping.is_set():
            began_s = time.monotonic()
            self._refresh(self._tab)
            while (left_s := began_s + REFRESH_S - time.monotonic()) > 0 and not stopping.is_set():
                asked = self._tab.next_asked(left_s)
                if asked is not None:
                    self._tab.put(asked, *self._page(asked))

    def wake(self) -> None:
        """Have `serve` look at once whether it is to stop; from any thread.

        Raises:
            Py4JError: the application has ended.
        """
        tab = self._tab
        if tab is not None:
            tab.wake()

    def close(self) -> None:
        """Take away what was put into Spark."""
        self._attached.close()
        self._questions.close()

    def _put(self, attach: Callable[[SparkContext], Part], without: str) -> Part | None:
        try:
            return attach(self._context)
        except NoPlaceError as error:
            logger.debug("%s: %s", without, error)
        except CompilationError as error:
            logger.info("%s: %s", without, error)
        return None

    def _page(self, asked: AskedPage) -> tuple[Html, str]:
        """Return a page as HTML and as JSON; one that can't be made says so, and the others go on."""
        try:
            html, data = self._pages[asked.kind](self._controller.image, asked)
            page = html, _json(data)
        except Exception as error:  # of a page, which only shows
            said = repr(error)
            # Who looks asks again every two seconds.
            if self._failures.get(asked.kind) != said:
                logger.warning("The Log tab can't make a page (%r)", asked.kind, exc_info=error)
            self._failures[asked.kind] = said
            return failed_page(said), _json({"failure": said})
        self._failures.pop(asked.kind, None)
        return page

    def _refresh(self, tab: SparkTab) -> None:
        status = self._status()
        now_ms = monotonic_ms()
        if self._sampled_ms is None or now_ms - self._sampled_ms >= SAMPLE_MS:
            self._sampled_ms = now_ms
            self._history.sample(chart_figures(status))
        if self._stages is not None:
            self._stages.show(status.brokers, now_ms)
        shown = Shown(status, self._history.charts)
        tab.put(OVERVIEW, self._overview.render(shown), _json(status))

    def _status(self) -> Status:
        now_ms = wall_clock_ms()
        # The order matters: the image that is looked at is not older than the last event.
        images = [CommittedImage(*self._committed.popleft()) for _ in range(len(self._committed))]
        image = images[-1].image if images else self._controller.image
        self._health.look_at(image)
        for reason, rack in self._places.look():
            self._events.note(Event(at_ms=now_ms, kind="restarted", subject=rack, reason=reason))
        self._events.committed(images, now_ms)
        figures = self._figures.read(self._controller.broker_metrics.latest(), now_ms)
        for event in self._throttles.look(figures, now_ms):
            self._events.note(event)
        # A loop that is too busy to answer leads all the same; one that has failed does not.
        described = self._controller.ask(ActiveController.describe_quorum, ANSWER_WITHIN_S)
        if described is not None or self._controller.failure is not None:
            self._quorum = described
        quorum = self._quorum
        observation = Observation(
            taken_ms=now_ms,
            cluster_id=self._controller.cluster_id or "",
            bootstrap_servers=self._controller.bootstrap_servers,
            missing=self._controller.missing,
            image=image,
            controller=None if quorum is None else _controller_status(quorum),
            places=self._places.places,
            figures=figures,
            queries=() if self._queries is None else self._queries.queries(),
        )
        return make_status(observation, self._health, self._events)


def _quietly(detach: Callable[[], None]) -> None:
    with contextlib.suppress(*JVM_GONE):  # the application has ended, and what was put into it
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


def _min_insync_replicas(config: BrokerConfig, image: MetadataImage) -> int:
    """Return the minimum of topics that have none of their own."""
    told = image.broker_configs(None).get(MIN_IN_SYNC_REPLICAS)
    return config.min_insync_replicas if told is None else int(told)


def _json(value: Any) -> str:
    return json.dumps(as_json(value), separators=(",", ":"))
