"""Racks and brokers of a rack: which size a cluster has, and which of its brokers a smaller one lacks."""

from sparklog.node.metadata.cluster_size import ClusterSize, beyond

DENSE = {0: "rack-0", 1: "rack-0", 2: "rack-1", 3: "rack-1", 4: "rack-2", 5: "rack-2"}


def test_smaller_size_keeps_the_first_racks_and_the_lowest_ids_of_each() -> None:
    """The voters of the metadata log are the first brokers of the first racks."""
    assert beyond(DENSE, 2, None) == {4, 5}
    assert beyond(DENSE, None, 1) == {1, 3, 5}
    assert beyond(DENSE, 2, 1) == {1, 3, 4, 5}
    assert beyond(DENSE, None, None) == frozenset()


def test_racks_with_names_of_their_own_come_in_the_order_of_their_ids() -> None:
    """`sparklog.rack.names` may name the first racks, and those that are added later have numbers."""
    named = {0: "west", 1: "east", 2: "rack-2", 3: "rack-3", 1000: "west", 7: None}
    assert beyond(named, 3, None) == {3}
    assert beyond(named, 1, 1) == {1, 2, 3, 1000}
    assert ClusterSize.of(named) == ClusterSize(4, 2)


def test_names_of_racks_give_their_numbers_whatever_they_are_and_whichever_brokers_are_there() -> None:
    """A rack called rack-3 may be the third one, and a broker that is away moves no other rack."""
    names = ("rack-1", "rack-2", "rack-3")
    members = {0: "rack-1", 1: "rack-2", 2: "rack-3"}
    assert ClusterSize.of(members, names) == ClusterSize(3, 1)
    assert beyond(members, 3, None, names) == frozenset()
    assert beyond({0: "west", 2: "south"}, 2, None, ("west", "east", "south")) == {2}
    assert beyond({0: "rack-0", 1: "elsewhere"}, 1, None, ("rack-0",)) == frozenset()


def test_size_is_in_words_in_messages() -> None:
    """Operators read it in refusals."""
    assert ClusterSize.of(DENSE) == ClusterSize(3, 2)
    assert str(ClusterSize(3, 2)) == "3 racks of 2 brokers each"
    assert str(ClusterSize(1, 1)) == "1 rack of 1 broker"
