"""Writes from any of the user's threads, while the application has a cluster.

Spark looks up a format that is written in Python in the active session of the calling thread, and a user's
own thread has none: `save` failed there with DATA_SOURCE_NOT_FOUND, while `load` worked. PySpark has no hook
for it, so the methods of its writers that look up formats make the session of their DataFrame the active one
during the call, as Spark's own methods do.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

_METHODS: Final[tuple[tuple[type[Any], str], ...]] = (
    (DataFrameWriter, "save"),
    (DataFrameWriter, "saveAsTable"),
    (DataFrameWriter, "insertInto"),
    (DataStreamWriter, "start"),
    (DataStreamWriter, "toTable"),
)


@contextmanager
def writes_from_any_thread() -> Iterator[None]:
    before = [(writer, name, vars(writer)[name]) for writer, name in _METHODS]
    for writer, name, method in before:
        setattr(writer, name, _with_active_session(method))
    try:
        yield
    finally:
        for writer, name, method in before:
            setattr(writer, name, method)


def _with_active_session(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        session: SparkSession = self._spark
        java_sessions: Any = SparkSession._get_j_spark_session_class(session._jvm)
        if java_sessions.getActiveSession().isDefined():
            return method(self, *arguments, **named)
        java_sessions.setActiveSession(session._jsparkSession)
        try:
            return method(self, *arguments, **named)
        finally:
            java_sessions.clearActiveSession()

    return call
