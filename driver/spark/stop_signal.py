"""SIGTERM and SIGINT, to this process and to the JVM of Spark's driver.

Under spark-submit an operator signals the JVM, which would exit at once and end Spark before the cluster has
stopped. So the JVM only records its signals (`java/StopSignal.java`), and is polled for them. It does not
call this process back: Py4J's callback server requires no token, and every user of the host could stop the
application by one line to its port.
"""

import signal
import threading
from importlib.resources import files

from pyspark import SparkContext

from sparklog.driver.spark.calls import JVM_GONE, answered
from sparklog.driver.spark.janino import compiled, instance_of


class StopSignal:
    """The signals received since its creation, in the main thread."""

    def __init__(self, spark_context: SparkContext) -> None:
        """Start to receive the signals.

        Raises:
            CompilationError: this Spark cannot compile the JVM's part.
            Py4JError: the JVM has ended.
        """
        self._received = threading.Event()
        source = files("sparklog.driver.spark.java").joinpath("StopSignal.java").read_text()
        java_class = compiled(spark_context, "sparklog.spark.StopSignal", source)
        self._java_signal = instance_of(spark_context, java_class)
        for name in ("TERM", "INT"):
            signal.signal(signal.Signals[f"SIG{name}"], lambda number, frame: self._received.set())
            self._java_signal.receive(name)

    def wait(self, timeout_s: float) -> bool:
        """Return whether a signal was received.

        Returns at once for a signal to this process, and after `timeout_s` for one to the JVM or for none.
        """
        return self._received.wait(timeout_s) or self._has_come_to_java()

    def _has_come_to_java(self) -> bool:
        try:
            return answered(lambda: bool(self._java_signal.isReceived()))
        except JVM_GONE:  # not a signal; the caller checks whether Spark has stopped
            return False
