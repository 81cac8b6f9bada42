"""Calls into Spark's JVM that survive a Ctrl-C in another thread.

When a KeyboardInterrupt interrupts a call in one thread, py4j may have the JVM close the connections of all
threads (`GatewayServer.shutdownSocket` closes each that has the gateway's port on the JVM's side, which all
have). A call that waits for its answer then fails although the called method goes on, so it has to be
repeated.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

Result = TypeVar("Result")

JVM_GONE: Final = (Py4JError, OSError)
"""The errors of calls after the end of the context or the JVM: py4j passes on a refused connection as it
is."""
_PAUSE_S: Final = 0.01
_NOBODY_LISTENS: Final = "trying to connect"


def answered(call: Callable[[], Result]) -> Result:
    """Return `call()`, repeated whenever its connection is lost; it must be idempotent.

    Raises:
        Exception: an error of `call`; one of `JVM_GONE` when the JVM no longer answers.
    """
    while True:
        try:
            return call()
        except Py4JError as error:
            if not is_connection_lost(error):
                raise
            time.sleep(_PAUSE_S)


def is_connection_lost(error: Exception) -> bool:
    """Return whether a call failed only because of its connection, so that a repetition may succeed."""
    if isinstance(error, Py4JNetworkError):
        return _NOBODY_LISTENS not in str(error)
    # After two attempts py4j's error says no more than that; all its other errors contain Java's.
    return type(error) is Py4JError and "while calling" in str(error) and "Trace:" not in str(error)


def is_stopped(spark_context: SparkContext) -> bool:
    java_context = spark_context._jsc
    try:
        return java_context is None or answered(lambda: bool(java_context.sc().isStopped()))
    except (Py4JNetworkError, OSError):  # the JVM has ended
        return True


def is_end_of(spark_context: SparkContext, error: Exception) -> bool:
    """Return whether a call failed because the application has ended; otherwise a repetition may succeed."""
    return isinstance(error, JVM_GONE) and is_stopped(spark_context)
