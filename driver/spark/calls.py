"""Calls into Spark's JVM that somebody's Ctrl-C does not end.

When a KeyboardInterrupt breaks off a call in one thread, py4j may have the JVM close the connections of all
threads (`GatewayServer.shutdownSocket` closes each that has the gateway's port on the JVM's side, which all
have). A call that waits for its answer then fails although what it called goes on, so it is to be made anew.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

Result = TypeVar("Result")

JVM_GONE: Final = (Py4JError, OSError)
"""What calls raise when the context or the JVM has ended: py4j hands a refused connection on as it is."""
_PAUSE_S: Final = 0.01
_NOBODY_LISTENS: Final = "trying to connect"


def answered(call: Callable[[], Result]) -> Result:
    """Return `call()`, called again whenever its connection is lost; it must do no harm twice.

    Raises:
        Exception: what `call` raises; one of `JVM_GONE` when nobody answers any more.
    """
    while True:
        try:
            return call()
        except Py4JError as error:
            if not is_connection_lost(error):
                raise
            time.sleep(_PAUSE_S)


def is_connection_lost(error: Exception) -> bool:
    """Return whether a call failed only for its connection, and another one may do better."""
    if isinstance(error, Py4JNetworkError):
        return _NOBODY_LISTENS not in str(error)
    # Having tried twice, py4j has no more to say than that; of all else it tells what Java said.
    return type(error) is Py4JError and "while calling" in str(error) and "Trace:" not in str(error)


def is_stopped(spark_context: SparkContext) -> bool:
    """Return whether the application has ended."""
    java_context = spark_context._jsc
    try:
        return java_context is None or answered(lambda: bool(java_context.sc().isStopped()))
    except (Py4JNetworkError, OSError):  # there is no JVM any more
        return True


def is_end_of(spark_context: SparkContext, error: Exception) -> bool:
    """Return whether a call failed because the application has ended; otherwise another one may do better."""
    return isinstance(error, JVM_GONE) and is_stopped(spark_context)
