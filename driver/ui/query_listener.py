"""The streaming queries of the application, of all its sessions, as Spark tells its listeners of them.

The listener is Java (`java/QueryListener.java`) and keeps each query's last progress; it is asked from here.
Its text is read where the pages are made (`machine/queries.py`).
"""

from typing import Any, Self

from pyspark import SparkContext

from sparklog.driver.spark.janino import compiled, instance_of
from sparklog.driver.ui.java import java_source


class QueryListener:
    """A listener that hears of the queries from `attach` to `detach`."""

    def __init__(self, java_context: Any, java_listener: Any) -> None:
        """See `attach`."""
        self._context = java_context
        self._listener = java_listener
        self._text = ""

    @classmethod
    def attach(cls, context: SparkContext) -> Self:
        """Begin to listen.

        Raises:
            CompilationError: this Spark has other classes.
            Py4JError: the application ends.
        """
        spark_context: Any = context._jsc
        source = java_source("QueryListener")
        listener = instance_of(context, compiled(context, "sparklog.ui.QueryListener", source))
        spark_context.sc().addSparkListener(listener)
        return cls(spark_context.sc(), listener)

    def text(self) -> str:
        """Return the queries by their last progress, the same object while there is no other.

        Raises:
            Py4JError: the application ends.
        """
        text = self._listener.read()
        if text is not None:
            self._text = str(text)
        return self._text

    def detach(self) -> None:
        """Listen no more.

        Raises:
            Py4JError: the application has ended.
        """
        self._context.removeSparkListener(self._listener)
