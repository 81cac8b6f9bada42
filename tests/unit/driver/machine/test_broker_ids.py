"""The ids of brokers over starts and scalings: no id ever belongs to another rack than before."""

import pytest

from sparklog.driver.machine.broker_ids import BrokerIds, counted_of, searched_broker_ids
from sparklog.node.metadata.cluster_size import ClusterSize


def all_ids(counted: int, size: ClusterSize) -> list[int]:
    return [each for brokers in BrokerIds(counted).racks(size).values() for each in brokers]


@pytest.mark.parametrize(("racks", "brokers_per_rack"), [(3, 1), (3, 2), (2, 3), (1, 4)])
def test_cluster_that_is_not_scaled_counts_its_brokers_rack_by_rack(
    racks: int, brokers_per_rack: int
) -> None:
    """Data directories of clusters from before scaling have these ids."""
    size = ClusterSize(racks, brokers_per_rack)
    assert all_ids(brokers_per_rack, size) == list(range(racks * brokers_per_rack))


@pytest.mark.parametrize("counted", [1, 2])
def test_scaling_gives_no_id_to_another_rack(counted: int) -> None:
    """Two replicas of a partition could lie in one fault domain, and a directory would be another rack's."""
    racks = {
        broker_id: rack
        for rack, brokers in BrokerIds(counted).racks(ClusterSize(6, 4)).items()
        for broker_id in brokers
    }
    assert len(racks) == 24
    for size in (ClusterSize(2, 4), ClusterSize(6, 1), ClusterSize(4, 3)):
        for rack, brokers in BrokerIds(counted).racks(size).items():
            assert [racks[each] for each in brokers] == [rack] * size.brokers_per_rack


@pytest.mark.parametrize("counted", [1, 2, 3])
@pytest.mark.parametrize("grown", [0, 1, 2])
def test_start_finds_out_how_brokers_were_counted_from_older_directories(counted: int, grown: int) -> None:
    """The driver keeps nothing: it would give a broker's directory to none, and begin an empty one."""
    size = ClusterSize(3, counted + grown)
    found = all_ids(counted, size)
    assert counted_of(dict.fromkeys(found), size) == counted
    assert counted_of(dict.fromkeys(found[1:]), size) == counted, "the disk of one broker is lost"


def test_start_with_more_brokers_a_rack_than_before_keeps_the_ids_there_are() -> None:
    """A restart with other numbers is a way to grow, too."""
    assert counted_of(dict.fromkeys([0, 1, 2]), ClusterSize(3, 2)) == 1
    assert counted_of(dict.fromkeys(range(6)), ClusterSize(3, 4)) == 2
    assert counted_of({}, ClusterSize(3, 4)) == 4


@pytest.mark.parametrize(
    ("counted", "left", "starts"),
    [
        (2, [0, 1, 2, 3, 4, 5], {(3, 1): [0, 2, 4], (3, 2): [0, 1, 2, 3, 4, 5]}),
        (1, [0, 1, 2, 3, 4, 1000, 1001, 1002], {(3, 2): [0, 1000, 1001, 1002, 1, 2]}),
        (2, [0, 1], {(1, 1): [0], (1, 2): [0, 1]}),
        (2, [2], {(3, 1): [0, 2, 4]}),
    ],
)
def test_start_with_other_numbers_than_the_first_one_counts_ids_as_that_did(
    counted: int, left: list[int], starts: dict[tuple[int, int], list[int]]
) -> None:
    """Directories of brokers that have left are there too: neither they nor the new numbers may count."""
    for numbers, expected in starts.items():
        size = ClusterSize(*numbers)
        found = dict.fromkeys(searched_broker_ids(size) & set(left), counted)
        assert sorted(all_ids(counted_of(found, size), size)) == sorted(expected)


@pytest.mark.parametrize(
    ("older", "noted", "size", "counted"),
    [
        ([0, 2, 3, 4, 5], {1: 1}, (3, 2), 2),
        ([0, 1, 2], {3: 1}, (3, 2), 1),
        ([0, 1, 2, 3], {4: 2, 5: 2, 2000: 2, 2001: 2}, (3, 3), 2),
        ([4, 5], {0: 2}, (3, 1), 2),
    ],
)
def test_few_directories_with_a_number_do_not_outvote_the_ids_of_older_ones(
    older: list[int], noted: dict[int, int], size: tuple[int, int], counted: int
) -> None:
    """A start with wrong numbers may have noted one where a disk was lost; the others show the truth."""
    assert counted_of(dict.fromkeys(older) | noted, ClusterSize(*size)) == counted


@pytest.mark.parametrize("counted", [1, 2, 3])
def test_rack_of_a_broker_is_the_one_whose_ids_have_it(counted: int) -> None:
    """The driver starts a missing voter, of which the log says no more than its id."""
    ids = BrokerIds(counted, ("a", "b"))
    for rack, brokers in ids.racks(ClusterSize(5, 4)).items():
        assert {ids.rack_of(each) for each in brokers} == {rack}
