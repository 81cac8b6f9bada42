"""The search for brokers' directories, and what becomes of brokers when it fails."""

import logging
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from sparklog.driver.spark.broker_jobs import BrokerJobs
from sparklog.driver.spark.directory_search import find_directories, find_directories_beside_brokers
from sparklog.driver.spark.slots import BrokerSlots
from sparklog.hosting import BrokerAssignment
from tests.application_secret import SECRET
from tests.unit.driver.spark.java_virtual_machine import context_of


def test_search_that_fails_in_a_running_cluster_keeps_no_broker_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A job that was ended, to go on without a broker, was never submitted: a healthy broker stayed down."""
    context: Any = context_of(None)
    context._jsc.sc().schedulerBackend.side_effect = Py4JError("the scheduler is gone")
    slots = BrokerSlots(context, MagicMock(), cores_per_broker=1, takes_resource=False)
    broker = BrokerAssignment(7, "rack-0", "driver", 1, SECRET, {}, ("/kept",), temporary=False, log_level=20)
    with caplog.at_level(logging.WARNING):
        assert find_directories_beside_brokers(slots, BrokerJobs(context), "group", [broker]) == {}
    assert "Directories of broker 7 were not looked for" in caplog.text
    assert "the scheduler is gone" in caplog.text


def test_start_under_dynamic_allocation_that_finds_no_directories_warns_of_a_new_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark had started executors on other hosts; an empty cluster took the place of the one there was."""
    context: Any = context_of(None)
    context._jsc.sc().statusStore().executorList(True).iterator().hasNext.return_value = False
    slots = BrokerSlots(context, MagicMock(id=7), cores_per_broker=1, takes_resource=False, allocated=True)
    broker = BrokerAssignment(7, "rack-0", "driver", 1, SECRET, {}, ("/kept",), temporary=False, log_level=20)
    with caplog.at_level(logging.WARNING):
        assert find_directories(slots, BrokerJobs(context), "group", [broker]) == {}
    assert "(/kept)" in caplog.text and "NEW cluster" in caplog.text
