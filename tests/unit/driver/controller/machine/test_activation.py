"""The first decision of a controller about the size to which its cluster was scaled."""

import logging

import pytest

from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY
from sparklog.node.config.size_request import size_request
from sparklog.node.metadata.cluster_size import ClusterSize
from tests.unit.driver.controller.conversation import Conversation


def scaled_to(size: ClusterSize) -> Conversation:
    cluster = Conversation().start(0, 1, 2, 3, 4)
    cluster.say(size_request(*size))
    return cluster


def test_start_with_more_racks_than_the_cluster_was_scaled_to_raises_it_to_its_own_number() -> None:
    """Its brokers would be drained again at once, or be missing after a later start with the first number."""
    cluster = scaled_to(ClusterSize(3, 2))
    cluster.take(cluster.controller.bootstrap((), ClusterSize(5, 1)))
    configs = cluster.image.broker_configs(None)
    assert configs[RACKS_KEY] == "5"
    assert configs[BROKERS_PER_RACK_KEY] == "2"
    assert cluster.controller.surplus == {}


def test_start_with_fewer_racks_and_a_restart_of_the_controller_leave_the_size_as_it_is() -> None:
    """A supervisor starts an application with the arguments it had before it was scaled."""
    cluster = scaled_to(ClusterSize(5, 1))
    assert cluster.controller.bootstrap((), ClusterSize(3, 1)).records == []
    shrinking = scaled_to(ClusterSize(3, 1))
    again = shrinking.controller.bootstrap((), ClusterSize(5, 1), is_new_application=False)
    assert again.records == []
    assert shrinking.controller.surplus == {3: 0, 4: 0}


def test_first_start_of_a_cluster_writes_its_size() -> None:
    """A missing number meant no limit to the controller, and that of its start to the driver."""
    cluster = Conversation()
    cluster.take(cluster.controller.bootstrap((), ClusterSize(3, 2)))
    configs = cluster.image.broker_configs(None)
    assert (configs[RACKS_KEY], configs[BROKERS_PER_RACK_KEY]) == ("3", "2")
    assert cluster.controller.bootstrap((), ClusterSize(3, 2)).records == []


def test_start_over_a_log_without_a_size_keeps_all_of_its_brokers() -> None:
    """Such a log was written before sizes were; brokers of a smaller start would be drained of their data."""
    cluster = Conversation().start(0, 1, 2, 3, 4)
    cluster.take(cluster.controller.bootstrap((), ClusterSize(3, 1)))
    assert cluster.image.broker_configs(None)[RACKS_KEY] == "5"
    assert cluster.controller.surplus == {}


def test_start_that_makes_a_cluster_larger_than_both_sizes_warns_of_the_product(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two small sizes of other shapes add up to many brokers, also beyond sparklog.max.brokers."""
    cluster = scaled_to(ClusterSize(5, 1))
    with caplog.at_level(logging.WARNING):
        cluster.controller.bootstrap((), ClusterSize(5, 3))
        cluster.controller.bootstrap((), ClusterSize(2, 1))
        cluster.controller.bootstrap((), ClusterSize(2, 3), is_new_application=False)
        assert caplog.messages == []
        cluster.controller.bootstrap((), ClusterSize(2, 3))
    (warning,) = caplog.messages
    assert "it gets 5 racks of 3 brokers each, 15 brokers" in warning
