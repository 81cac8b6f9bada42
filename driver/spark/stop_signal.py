"""SIGTERM and SIGINT, to this process and to the JVM that runs Spark's driver.

Under spark-submit the process that an operator signals is the JVM, which would end at once and take Spark
away from a cluster that has not stopped. So the JVM only remembers its signals (`java/StopSignal.java`), and
is asked for them. It does not call this process back: Py4J's server for such calls asks for no token, and
every user of the host could stop the application by one line to its port.
"""

import signal
import threading
from importlib.resources import files

from pyspark import SparkContext

from sparklog.driver.spark.calls import JVM_GONE, answered
from sparklog.driver.spark.janino import compiled, instance_of


class StopSignal:
    """The signals that were received since this was made, in the main thread."""

    def __init__(self, spark_context: SparkContext) -> None:
        """Receive the signals from now on.

        Raises:
            CompilationError: this Spark cannot compile the JVM's part.
            Py4JError: the JVM is gone.
        """
        self._received = threading.Event()
        source = files("sparklog.driver.spark.java").joinpath("StopSignal.java").read_text()
        java_class = compiled(spark_context, "sparklog.spark.StopSignal", source)
        self._java_signal = instance_of(spark_context, java_class)
        for name in ("TERM", "INT"):
            signal.signal(signal.Signals[f"SIG{name}"], lambda number, frame: self._received.set())
            self._java_signal.receive(name)

    def wait(self, timeout_s: float) -> bool:
        """Return whether a signal has come.

        Returns at once for a signal to this process, and after `timeout_s` for one to the JVM or for none.
        """
        return self._received.wait(timeout_s) or self._has_come_to_java()

    def _has_come_to_java(self) -> bool:
        try:
            return answered(lambda: bool(self._java_signal.isReceived()))
        except JVM_GONE:  # which is no signal, and is found out by asking whether Spark has stopped
            return False
