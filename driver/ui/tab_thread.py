"""The thread of the Log tab, which a cluster starts and stops.

The tab's modules take a while to import: the thread does that, when the cluster serves already. So this
module imports next to nothing.
"""

import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark import InheritableThread, SparkContext

from sparklog.driver.spark.calls import JVM_GONE, answered, is_end_of
from sparklog.driver.spark.rack import Rack
from sparklog.driver.ui.tab_source import TabSource

if TYPE_CHECKING:
    from sparklog.driver.ui.log_tab import LogTab

DETACH_WITHIN_S: Final = 2.0
RETRY_S: Final = 5.0

logger = logging.getLogger(__name__)


class TabThread:
    """The tab of one cluster, from `start` to `stop`; for any thread."""

    def __init__(self, context: SparkContext, source: TabSource, racks: Sequence[Rack]) -> None:
        self._context = context
        self._source = source
        self._racks = racks
        self._stopping = threading.Event()
        self._tab: LogTab | None = None
        self._thread = InheritableThread(target=self._run, name="sparklog tab", daemon=True)

    def start(self) -> None:
        """Begin to compile the tab; returns at once."""
        self._source.begin_tab()
        self._thread.start()

    def stop(self) -> None:
        """Remove the tab from Spark; waits a moment for that."""
        self._stopping.set()
        tab = self._tab
        if tab is not None:
            with contextlib.suppress(*JVM_GONE):  # the application has ended, and its UI with it
                tab.wake()
        if self._thread.is_alive():
            self._thread.join(DETACH_WITHIN_S)

    def _run(self) -> None:
        try:
            from sparklog.driver.ui.log_tab import LogTab

            self._tab = LogTab(self._context, self._source, self._racks)
            with contextlib.closing(self._tab):
                if self._tab.attach():
                    self._serve(self._tab)
                else:
                    self._stopping.wait()
        except JVM_GONE as error:
            if not self._stopping.is_set():
                logger.info("The Log tab is no longer refreshed: %s", error)
        except Exception:  # the tab only shows: the cluster goes on
            logger.exception("The Log tab is no longer refreshed")

    def _serve(self, tab: "LogTab") -> None:
        """Show the tab until stopped; an error does not end it.

        Raises:
            Py4JError: the application has ended.
        """
        while not self._stopping.is_set():
            try:
                answered(lambda: tab.serve(self._stopping))
            except Exception as error:
                if self._stopping.is_set() or is_end_of(self._context, error):
                    raise
                logger.warning("The Log tab is not refreshed for %.0f s", RETRY_S, exc_info=error)
                self._stopping.wait(RETRY_S)
