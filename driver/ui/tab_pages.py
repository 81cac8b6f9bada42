"""Makes the tab's pages: the overview once a second, and others on request.

It runs in the controller's process, on a thread of its own, and gets the driver's observations of Spark. It
reads the immutable committed image, and asks the controller's loop one short question a second; values that
it can't get are left out. Pages of topics, with offsets from the partitions' leaders, of groups and of
transactions are made only when a browser requests them.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from sparklog.driver.controller.active_controller import ActiveController
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID, MIN_IN_SYNC_REPLICAS
from sparklog.driver.controller.quorum.description import QuorumDescription
from sparklog.driver.controller.server import ControllerServer
from sparklog.driver.ui.asked_page import AskedPage
from sparklog.driver.ui.group_pages import GroupPages
from sparklog.driver.ui.machine.broker_status_metrics import StatusMetricsReader
from sparklog.driver.ui.machine.chart_samples import chart_samples
from sparklog.driver.ui.machine.events import CommittedImage, EventLog
from sparklog.driver.ui.machine.history import SAMPLE_MS, History
from sparklog.driver.ui.machine.queries import query_statuses
from sparklog.driver.ui.machine.status import (
    ControllerStatus,
    Event,
    QueryStatus,
    Status,
    VoterStatus,
    as_json,
)
from sparklog.driver.ui.machine.status_maker import Observation, make_status
from sparklog.driver.ui.machine.throttles import Throttles
from sparklog.driver.ui.machine.tier_figures import TierReader
from sparklog.driver.ui.machine.topic_health import TopicHealth
from sparklog.driver.ui.pages.html import Html
from sparklog.driver.ui.pages.overview import Overview
from sparklog.driver.ui.pages.remarks import failed_page
from sparklog.driver.ui.pages.sections import Shown
from sparklog.driver.ui.pages.stage_metrics import stage_metrics
from sparklog.driver.ui.questions import Questions
from sparklog.driver.ui.tab_source import MadePage, MadeTab, Observed, StageText
from sparklog.driver.ui.topic_pages import TopicPages
from sparklog.driver.ui.transaction_pages import TransactionPages
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.types import BrokerId

ANSWER_WITHIN_S: Final = 0.2
"""How long a refresh waits for the controller."""
MAX_IMAGES_BEHIND: Final = 200
"""The most images not processed yet; with more than these in a second, events may be missing."""

logger = logging.getLogger(__name__)

MakePage: TypeAlias = Callable[[MetadataImage, AskedPage], tuple[Html, Any]]
"""Returns a page as HTML, and as data for JSON."""


class TabMaker:
    """The tab of one cluster; belongs to one thread. Other methods call `begin` if that was not done."""

    def __init__(self, config: BrokerConfig, controller: ControllerServer) -> None:
        self._config = config
        self._controller = controller
        self._committed: deque[tuple[MetadataImage, Mapping[BrokerId, str]]] = deque(maxlen=MAX_IMAGES_BEHIND)
        self._events = EventLog(EMPTY_IMAGE)
        self._has_begun = False
        self._health = TopicHealth(lambda image: _min_insync_replicas(config, image))
        self._metrics_reader = StatusMetricsReader()
        self._tier = TierReader()
        self._throttles = Throttles()
        self._pages: Mapping[str, MakePage] | None = None
        self._failures: dict[str, str] = {}
        """The error of the last page of a kind, None if there was none."""
        self._overview = Overview()
        self._history = History()
        self._sampled_ms: int | None = None
        self._quorum: QuorumDescription | None = None
        self._queries_text: str | None = None
        self._queries: tuple[QueryStatus, ...] = ()

    def begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        # In this order: an image committed in between is in the next list, too.
        self._events = EventLog(self._controller.image)
        self._controller.subscribe(self._note_image)

    def made_tab(self, observed: Observed) -> MadeTab:
        self.begin()
        status = self._status(observed)
        now_ms = monotonic_ms()
        if self._sampled_ms is None or now_ms - self._sampled_ms >= SAMPLE_MS:
            self._sampled_ms = now_ms
            self._history.sample(chart_samples(status))
        shown = Shown(status, self._history.charts)
        return MadeTab(
            MadePage(self._overview.render(shown), _json(status)),
            tuple(
                StageText(stage_id, "\n".join(f"{name}\n{value}" for name, value in metrics.items()))
                for stage_id, metrics in stage_metrics(status.brokers).items()
            ),
        )

    def made_page(self, key: str) -> MadePage:
        """Return a page; an error is shown in its place."""
        asked = AskedPage(key)
        try:
            html, data = self._kinds()[asked.kind](self._controller.image, asked)
            page = MadePage(html, _json(data))
        except Exception as error:  # of one page: the others go on
            said = repr(error)
            # A browser asks again every two seconds.
            if self._failures.get(asked.kind) != said:
                logger.warning("The Log tab can't make a page (%r)", asked.kind, exc_info=error)
            self._failures[asked.kind] = said
            return MadePage(failed_page(said), _json({"failure": said}))
        self._failures.pop(asked.kind, None)
        return page

    def _kinds(self) -> Mapping[str, MakePage]:
        if self._pages is None:
            controller = self._controller
            questions = Questions(controller.bootstrap_servers, controller.cluster_credentials)
            topics = TopicPages(self._config, self._health, questions, lambda: controller.table_statuses)
            groups = GroupPages(questions)
            transactions = TransactionPages(controller.bootstrap_servers, questions)
            self._pages = {
                "topics": topics.topics,
                "topic": topics.topic,
                "producers": transactions.producers,
                "groups": groups.groups,
                "group": groups.group,
                "transactions": transactions.transactions,
            }
        return self._pages

    def _note_image(self, image: MetadataImage, departure_reasons: Mapping[BrokerId, str]) -> None:
        self._committed.append((image, departure_reasons))

    def _status(self, observed: Observed) -> Status:
        now_ms = wall_clock_ms()
        # The order matters: the image must not be older than the last event.
        images = [CommittedImage(*self._committed.popleft()) for _ in range(len(self._committed))]
        image = images[-1].image if images else self._controller.image
        self._health.look_at(image)
        for seen in observed.events:
            self._events.note(Event(at_ms=now_ms, kind=seen.kind, subject=seen.subject, reason=seen.reason))
        self._events.committed(images, now_ms)
        metrics = self._metrics_reader.read(self._controller.broker_metrics.latest(), now_ms)
        for event in self._throttles.look(metrics, now_ms):
            self._events.note(event)
        # A controller whose loop is too busy to answer leads all the same; one that has failed does not.
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
            places=observed.places,
            metrics=metrics,
            queries=self._query_statuses(observed.queries),
            tier=self._tier.read(self._controller.broker_metrics.latest(), now_ms),
        )
        return make_status(observation, self._health, self._events)

    def _query_statuses(self, text: str | None) -> tuple[QueryStatus, ...]:
        if text != self._queries_text:
            self._queries_text = text
            self._queries = () if text is None else query_statuses(text)
        return self._queries


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
    altered = image.broker_configs(None).get(MIN_IN_SYNC_REPLICAS)
    return config.min_insync_replicas if altered is None else int(altered)


def _json(value: Any) -> str:
    return json.dumps(as_json(value), separators=(",", ":"))
