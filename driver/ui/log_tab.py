"""Puts the pages of the controller's process into Spark: the overview, and pages on request.

It observes Spark, for the places of brokers and the streaming queries, and gets finished pages (`tab_pages`).
While the process is down or does not answer, the last pages stay, and Java shows their age.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from pyspark import SparkContext

from sparklog.driver.spark.calls import JVM_GONE
from sparklog.driver.spark.janino import CompilationError, NoPlaceError, compiled, instance_of
from sparklog.driver.spark.rack import Rack
from sparklog.driver.ui.asked_page import OVERVIEW
from sparklog.driver.ui.broker_places import BrokerPlaces
from sparklog.driver.ui.java import java_source
from sparklog.driver.ui.progress_bar import UsersProgressBar
from sparklog.driver.ui.spark_tab import SparkTab
from sparklog.driver.ui.tab_source import DriverEvent, Observed, StageText, TabSource
from sparklog.node.clocks import monotonic_ms

logger = logging.getLogger(__name__)

REFRESH_MS: Final = 5_000
"""Spark refreshes the page every 10 s."""


class BrokerStages:
    """The stages' pages; belongs to one thread. The values disappear with the stages."""

    def __init__(self, java_stages: Any) -> None:
        self._stages = java_stages
        self._shown_ms: int | None = None

    @classmethod
    def attach(cls, context: SparkContext) -> Self:
        """Prepare `show`.

        Raises:
            CompilationError: this Spark has other classes.
            Py4JError: the application is ending.
        """
        spark_context: Any = context._jsc
        stages = compiled(context, "sparklog.ui.BrokerStages", java_source("BrokerStages"))
        return cls(instance_of(context, stages, spark_context.sc()))

    def show(self, stages: Iterable[StageText], now_ms: int) -> None:
        """Show the brokers' metrics on their stages' pages, at most once in `REFRESH_MS`.

        Raises:
            Py4JError: the application is ending.
        """
        if self._shown_ms is not None and now_ms - self._shown_ms < REFRESH_MS:
            return
        self._shown_ms = now_ms
        for stage in stages:
            self._stages.show(stage.stage_id, stage.text)


class QueryListener:
    """A listener of the streaming queries of all sessions, from `attach` to `detach`.

    It is Java (`java/QueryListener.java`) and keeps each query's last progress, which Python polls and
    `machine/queries.py` parses.
    """

    def __init__(self, java_context: Any, java_listener: Any) -> None:
        self._context = java_context
        self._listener = java_listener
        self._text = ""

    @classmethod
    def attach(cls, context: SparkContext) -> Self:
        spark_context: Any = context._jsc
        source = java_source("QueryListener")
        listener = instance_of(context, compiled(context, "sparklog.ui.QueryListener", source))
        spark_context.sc().addSparkListener(listener)
        return cls(spark_context.sc(), listener)

    def text(self) -> str:
        """Return the queries by their last progress, the same object until there is a newer one.

        Raises:
            Py4JError: the application is ending.
        """
        text = self._listener.read()
        if text is not None:
            self._text = str(text)
        return self._text

    def detach(self) -> None:
        self._context.removeSparkListener(self._listener)


REFRESH_S: Final = 1.0
MAX_EVENTS_WAITING: Final = 100
"""The most events without a process to take them."""


Part = TypeVar("Part")


class LogTab:
    """The tab of one cluster; belongs to one thread, except for `wake`. Order: `attach`, `serve`, `close`."""

    def __init__(self, context: SparkContext, source: TabSource, racks: Sequence[Rack]) -> None:
        self._context = context
        self._source = source
        self._places = BrokerPlaces(context, racks)
        self._events: list[DriverEvent] = []
        self._tab: SparkTab | None = None
        self._queries: QueryListener | None = None
        self._stages: BrokerStages | None = None
        self._attached = contextlib.ExitStack()

    def attach(self) -> bool:
        """Attach the tab, and listeners where Spark has them; return whether there is a tab.

        Raises:
            Py4JError: the application is ending.
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
        """Refresh the overview once a second, and put the requested pages; may be called again.

        Raises:
            Py4JError: the application is ending.
        """
        assert self._tab is not None, "attach comes first"
        while not stopping.is_set():
            began_s = time.monotonic()
            self._refresh(self._tab)
            while (left_s := began_s + REFRESH_S - time.monotonic()) > 0 and not stopping.is_set():
                asked = self._tab.next_asked(left_s)
                if asked is not None:
                    page = self._source.made_page(asked.key)
                    if page is not None:
                        self._tab.put(asked, page.html, page.json)

    def wake(self) -> None:
        """Let `serve` check at once whether to stop; from any thread.

        Raises:
            Py4JError: the application has ended.
        """
        tab = self._tab
        if tab is not None:
            tab.wake()

    def close(self) -> None:
        """Remove the tab and the listeners from Spark."""
        self._attached.close()

    def _put(self, attach: Callable[[SparkContext], Part], without: str) -> Part | None:
        try:
            return attach(self._context)
        except NoPlaceError as error:
            logger.debug("%s: %s", without, error)
        except CompilationError as error:
            logger.info("%s: %s", without, error)
        return None

    def _refresh(self, tab: SparkTab) -> None:
        self._events += (
            DriverEvent(kind="restarted", subject=rack, reason=reason) for reason, rack in self._places.look()
        )
        del self._events[:-MAX_EVENTS_WAITING]
        made = self._source.made_tab(
            Observed(
                places=self._places.places,
                events=tuple(self._events),
                queries=None if self._queries is None else self._queries.text(),
            )
        )
        if made is None:
            return
        self._events.clear()
        if self._stages is not None:
            self._stages.show(made.stages, monotonic_ms())
        tab.put(OVERVIEW, made.overview.html, made.overview.json)


def _quietly(detach: Callable[[], None]) -> None:
    with contextlib.suppress(*JVM_GONE):  # the application has ended, and what was put into it
        detach()
