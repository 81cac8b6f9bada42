"""Where replicas go: the rules of `placement` for every cluster, and what they come to in the usual one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.controller.machine.placement import Load, UsableBroker, place, validate_manual_assignment
from sparklog.protocol.errors import ErrorCode, KafkaError

RACKS = [UsableBroker(broker_id, "abc"[broker_id % 3], False) for broker_id in range(6)]


@st.composite
def clusters(draw: st.DrawFn) -> list[UsableBroker]:
    """Draw brokers of up to five racks, at least one of them unfenced."""
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=12))
    fenced = draw(st.lists(st.booleans(), min_size=len(racks), max_size=len(racks)))
    fenced[draw(st.integers(0, len(racks) - 1))] = False
    return [
        UsableBroker(number, rack, is_fenced)
        for number, (rack, is_fenced) in enumerate(zip(racks, fenced, strict=True))
    ]


@given(clusters(), st.integers(1, 20), st.data())
def test_place_any_cluster_keeps_every_rule(
    brokers: list[UsableBroker], partition_count: int, data: st.DataObject
) -> None:
    """A replica set that breaks a rule loses data with the first rack that fails."""
    replication_factor = data.draw(st.integers(1, len(brokers)))
    load = Load()
    place(brokers, data.draw(st.integers(0, 9)), data.draw(st.integers(1, len(brokers))), load)
    placed = place(brokers, partition_count, replication_factor, load)

    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    unfenced = {broker.broker_id for broker in brokers if not broker.fenced}
    sizes = Counter(rack_of.values())
    assert len(placed) == partition_count
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == replication_factor
        assert replicas[0] in unfenced
        in_rack = Counter(rack_of[broker_id] for broker_id in replicas)
        for rack, size in sizes.items():
            # No rack holds one more than another that still has a free broker.
            assert in_rack[rack] == size or in_rack[rack] >= max(in_rack.values()) - 1
        if replication_factor <= len(sizes):
            assert max(in_rack.values()) == 1
    led = Counter(replicas[0] for replicas in placed)
    assert max(led[broker_id] for broker_id in unfenced) - min(led[broker_id] for broker_id in unfenced) <= 1


def test_place_three_racks_spreads_followers_of_one_leader() -> None:
    """When a broker dies, its leaderships must not all fall to one neighbour."""
    placed = place(RACKS[:3], partition_count=6, replication_factor=2, load=Load())
    assert placed == [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)]


def test_place_many_small_topics_leads_in_turn() -> None:
    """A hundred topics of one partition must not all be led by the first broker."""
    load = Load()
    for _ in range(12):
        place(RACKS, 1, 3, load)
    assert load.led == dict.fromkeys(range(6), 2)
    assert load.held == dict.fromkeys(range(6), 6)


def test_place_extended_topic_goes_on_where_it_ended() -> None:
    """New partitions belong to the brokers that lead fewest of the topic's old ones."""
    same_topic = [(0, 1, 2), (1, 2, 0)]
    assert place(RACKS[:3], 1, 3, Load(same_topic), same_topic)[0][0] == 2


@pytest.mark.parametrize(
    ("brokers", "part_of_message"),
    [
        ([], "none is registered"),
        ([UsableBroker(0, "a", True)], "all are fenced"),
        (RACKS[:2], "the cluster has only 2 broker(s)"),
    ],
)
def test_place_too_few_brokers_says_why(brokers: list[UsableBroker], part_of_message: str) -> None:
    """The message is all that a user of CreateTopics gets to see."""
    with pytest.raises(KafkaError) as raised:
        place(brokers, 1, 3, Load())
    assert raised.value.error_code is ErrorCode.invalid_replication_factor
    assert part_of_message in raised.value.message


@pytest.mark.parametrize(
    ("broker_ids", "replication_factor", "part_of_message"),
    [
        ((), None, "empty replica list"),
        ((0, 9), None, "no such broker is registered"),
        ((0, 1, 0), None, "the broker 0 more than once"),
        ((0, 1), 3, "previous partitions, which have 3 replica(s)"),
    ],
)
def test_manual_assignment_bad_is_refused(
    broker_ids: tuple[int, ...], replication_factor: int | None, part_of_message: str
) -> None:
    """A typing error in an assignment must not become a partition that can never be whole."""
    with pytest.raises(KafkaError) as raised:
        validate_manual_assignment(broker_ids, {0: None, 1: None}, replication_factor)
    assert raised.value.error_code is ErrorCode.invalid_replica_assignment
    assert part_of_message in raised.value.message
