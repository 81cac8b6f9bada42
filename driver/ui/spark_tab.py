"""The tab in Spark's UI, for the driver's Python: pages in, requests for pages out.

Calls go from Python to Java only. `java/LogTab.java` is compiled when the tab is attached; it also says what
to show when no page comes any longer.
"""

from typing import Any, Final, Self

from pyspark import SparkContext

from sparklog.driver.spark.janino import NoPlaceError, compiled, instance_of
from sparklog.driver.ui.asked_page import AskedPage
from sparklog.driver.ui.java import java_source
from sparklog.spark_versions import SparkVersion, java_for

OLD_MS: Final = 5_000
_CLASS: Final = "sparklog.ui.LogTab"


class SparkTab:
    """The attached tab; belongs to one thread, which puts pages and gets the requests."""

    def __init__(self, java_tab: Any) -> None:
        self._java = java_tab

    @classmethod
    def attach(cls, context: SparkContext, *, old_ms: int = OLD_MS) -> Self:
        """Compile the tab and put it into the UI, which marks pages older than `old_ms` as old.

        Raises:
            NoPlaceError: there is no UI.
            CompilationError: this Spark has other classes.
            Py4JError: the application is ending.
        """
        java_context: Any = context._jsc
        user_interface = java_context.sc().ui()
        if user_interface.isEmpty():
            raise NoPlaceError("spark.ui.enabled is false")
        source = java_for(SparkVersion.parse(context.version), java_source("LogTab"))
        java_class = compiled(context, _CLASS, source)
        # As text, for Java to parse: a small number would arrive as an Integer.
        tab = instance_of(context, java_class, user_interface.get(), str(old_ms))
        tab.attach()
        return cls(tab)

    def put(self, page: AskedPage, html: str, json: str) -> None:
        self._java.put(page.key, html, json)

    def next_asked(self, timeout_s: float) -> AskedPage | None:
        """Return a page that a browser waits for; None for none within the time, or after `wake`."""
        key = self._java.next(max(1, int(timeout_s * 1000)))
        if not key:
            return None
        return AskedPage(key)

    def wake(self) -> None:
        """End the wait in `next_asked`; from any thread.

        Raises:
            Py4JError: the application has ended.
        """
        self._java.wake()

    def detach(self) -> None:
        """Remove the tab.

        Raises:
            Py4JError: the application has ended.
        """
        self._java.detach()
