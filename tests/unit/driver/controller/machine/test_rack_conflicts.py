"""A start whose numbers would give brokers to other racks."""

from sparklog.driver.controller.machine.rack_conflicts import rack_conflict
from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from tests.unit.driver.controller.conversation import Conversation


def test_start_that_would_give_a_broker_to_another_rack_is_refused_with_the_numbers_there_were() -> None:
    """Two replicas of a partition could come to lie in one rack, and go with it."""
    cluster = Conversation()
    for broker_id in range(4):
        cluster.start(broker_id, rack=f"rack-{broker_id // 2}")
    expected = [ExpectedBroker(each, f"rack-{each}") for each in range(3)]
    message = rack_conflict(cluster.image, expected)
    assert message is not None
    assert "broker 1 is of rack-0" in message and "would be of rack-1 now (2 such brokers)" in message
    assert "racks=2 and brokers_per_rack=2" in message


def test_start_with_further_racks_or_fewer_conflicts_with_nothing() -> None:
    """A restart is one of the ways to grow."""
    cluster = Conversation().start(0, 1, 2)
    for racks in (1, 3, 5):
        assert (
            rack_conflict(cluster.image, [ExpectedBroker(each, f"rack-{each}") for each in range(racks)])
            is None
        )


def test_conflict_names_the_brokers_a_rack_by_which_ids_were_counted() -> None:
    """A cluster of two brokers a rack that keeps one of each is refused with the number it has now."""
    cluster = Conversation()
    for rack in range(3):
        cluster.start(2 * rack, rack=f"rack-{rack}")
    cluster.start(1003, rack="rack-3")
    message = rack_conflict(cluster.image, [ExpectedBroker(each, f"rack-{each}") for each in range(3)])
    assert message is not None
    assert "racks=4 and brokers_per_rack=2" in message
