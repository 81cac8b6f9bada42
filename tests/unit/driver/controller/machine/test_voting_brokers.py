"""The brokers that may vote: those that are there or still to come, and none that have left."""

from sparklog.driver.controller.machine.voting_brokers import voting_brokers
from sparklog.node.config.size_request import size_request
from tests.unit.driver.controller.conversation import Conversation

EXPECTED = {node_id: f"rack-{node_id}" for node_id in range(3)}


def scaled(racks: int | None, registered: int) -> Conversation:
    """A cluster of so many registered brokers, whose size has been changed to some racks."""
    conversation = Conversation().start(*range(registered))
    if racks is not None:
        conversation.say(size_request(racks, 1))
    return conversation


def test_expected_brokers_vote_before_they_have_registered() -> None:
    """Else the first to register would be the only voter."""
    assert voting_brokers(scaled(None, registered=1).image, EXPECTED, (), ()) == EXPECTED


def test_brokers_of_a_larger_size_vote_too_once_they_have_registered() -> None:
    """The driver started with fewer."""
    found = voting_brokers(scaled(5, registered=4).image, EXPECTED, (), ())
    assert found == {**EXPECTED, 3: "rack-3"}


def test_brokers_beyond_the_size_vote_until_they_are_empty_and_not_after_they_have_left() -> None:
    """Their votes are given up last, and never taken back."""
    image = scaled(1, registered=2).image
    assert voting_brokers(image, EXPECTED, (), ()) == {0: "rack-0", 1: "rack-1"}
    assert voting_brokers(image, EXPECTED, {1}, ()) == {0: "rack-0"}
