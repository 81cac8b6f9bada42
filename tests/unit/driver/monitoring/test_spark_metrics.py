"""The thread that puts figures into Spark: what fails once must not end it."""

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from sparklog.driver.monitoring import spark_metrics
from sparklog.driver.monitoring.spark_metrics import SparkMetrics
from tests.cluster import wait_for
from tests.unit.driver.spark.java_virtual_machine import context_of


def test_put_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one Ctrl-C in a notebook (py4j then closes all connections) there would be no metrics."""
    monkeypatch.setattr(spark_metrics, "REFRESH_S", 0.001)
    java = MagicMock()
    failures = [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o1.put. Trace:\nIllegalArgumentException"),
        ValueError("a figure that is none"),
    ]
    java.put.side_effect = lambda *_: failures and (_ for _ in ()).throw(failures.pop(0))
    metrics = SparkMetrics(context_of(java), lambda _: ("", ""), dict)
    metrics.start()
    wait_for(lambda: java.put.call_count > 5, "figures after the failures")
    metrics.stop()
    assert not failures
    java.detach.assert_called_once()


def test_thread_ends_with_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put into an application that has ended fails for ever."""
    monkeypatch.setattr(spark_metrics, "REFRESH_S", 0.001)
    java = MagicMock()
    context = context_of(java)
    context._jsc.sc().isStopped.return_value = True
    java.put.side_effect = Py4JError("An error occurred while calling o1.put. Trace:\nSparkEnv is null")
    metrics = SparkMetrics(context, lambda _: ("", ""), dict)
    metrics.start()
    wait_for(lambda: java.detach.called, "the end")
    assert java.put.call_count == 1
    metrics.stop()
