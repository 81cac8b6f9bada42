"""The streaming queries of all of the application's sessions, by Spark's listener of queries.

The listener is Java (`java/QueryListener.java`) and keeps each query's last progress, for Python to poll.
`machine/queries.py` parses its text.
"""

from typing import Any, Self

from pyspark import SparkContext

from sparklog.driver.spark.janino import compiled, instance_of
from sparklog.driver.ui.java import java_source


class QueryListener:
    """A listener of queries, from `attach` to `detach`."""

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
