"""The tab in Spark's UI, as the driver's Python holds it: a place to put pages, and to hear which are wanted.

Calls go from Python to Java only. `java/LogTab.java` is compiled when the tab is attached; it says what is
shown when nothing is put there any more.
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
    """The attached tab. Its pages may be put by one thread, which is also told what to put."""

    def __init__(self, java_tab: Any) -> None:
        """See `attach`."""
        self._java = java_tab

    @classmethod
    def attach(cls, context: SparkContext, *, old_ms: int = OLD_MS) -> Self:
        """Compile the tab and put it into the UI; figures older than `old_ms` are said to be old.

        Raises:
            NoPlaceError: there is none.
            CompilationError: this Spark has another one.
            Py4JError: the application ends.
        """
        java_context: Any = context._jsc
        user_interface = java_context.sc().ui()
        if user_interface.isEmpty():
            raise NoPlaceError("spark.ui.enabled is false")
        source = java_for(SparkVersion.parse(context.version), java_source("LogTab"))
        java_class = compiled(context, _CLASS, source)
        # As text, for Java to read: a small number would come there as an Integer.
        tab = instance_of(context, java_class, user_interface.get(), str(old_ms))
        tab.attach()
        return cls(tab)

    def put(self, page: AskedPage, html: str, json: str) -> None:
        """Show this."""
        self._java.put(page.key, html, json)

    def next_asked(self, timeout_s: float) -> AskedPage | None:
        """Return a page that somebody looks at and waits for; None for none within the time, or no more."""
        key = self._java.next(max(1, int(timeout_s * 1000)))
        if not key:
            return None
        return AskedPage(key)

    def wake(self) -> None:
        """Have who waits in `next_asked` wait no more; from any thread.

        Raises:
            Py4JError: the application has ended.
        """
        self._java.wake()

    def detach(self) -> None:
        """Take the tab away.

        Raises:
            Py4JError: the application has ended.
        """
        self._java.detach()
