"""Brokers that do not come up, and what the cluster's start says. Spark is made up, the controller is not."""

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driver.cluster import SparkCluster
from driver.controller import ControllerServer
from driver.controller.quorum.machine.candidate import ExpectedBroker
from driver.spark.slots import BrokerSlots
from sparklog.config import BrokerConfig
from sparklog.hosting import BrokerAssignment, BrokerEnd, BrokerRefusedError
from tests.inside import SECRET
from tests.unit.driver.controller.conversation import CLUSTER_ID
from tests.unit.driver.spark.java_virtual_machine import context_of

Ends = Callable[[int], list[BrokerEnd]]


def cluster_of(ends: Ends, directory: Path) -> SparkCluster:
    """Return a cluster of one broker; `ends` says how the n-th job of its rack ends."""
    context: Any = context_of(None)
    attempts = iter(range(1, 1_000))
    brokers_run = context.parallelize.return_value.barrier.return_value.mapPartitionsWithIndex.return_value
    job = brokers_run._jrdd.collectAsync.return_value
    job.jobIds.side_effect = list
    job.get.side_effect = lambda: [pickle.dumps(ends(next(attempts)))]
    config = BrokerConfig.from_mapping({}, racks=1)
    controller = ControllerServer(
        config,
        directory,
        secret=SECRET,
        expected_brokers=[ExpectedBroker(0, "rack-0")],
        new_cluster_id=CLUSTER_ID,
    )
    controller.start()
    assignment = BrokerAssignment(
        node_id=0,
        rack="rack-0",
        controller_host="127.0.0.1",
        controller_port=1,
        secret=SECRET,
        configuration=config.raw,
        directories=(),
        temporary=False,
        log_level=logging.INFO,
    )
    slots = BrokerSlots(context, profile=None, cores_per_broker=1, takes_resource=False)
    return SparkCluster("test", controller, slots, [[assignment]], [], config)


def test_start_whose_brokers_are_all_refused_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason and its remedy were taken for a user's stop, when all were refused within one look."""
    cluster = cluster_of(lambda _: [BrokerEnd(0, refusal="the disk is another cluster's")], tmp_path)
    with pytest.raises(BrokerRefusedError, match="broker 0 of rack-0: the disk is another cluster's"):
        cluster.start()
    assert "application ended" not in caplog.text
