"""Moves of replicas: what every search keeps, in any cluster, and what they come to in the usual ones."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.controller.machine.balancing.moves import (
    Move,
    Surroundings,
    changes_of_preferred_leaders,
    is_uneven,
    moves_between_racks,
    moves_off,
    moves_to_lighter_brokers,
)
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.placement import Load, UsableBroker, place
from sparklog.protocol.types import BrokerId, TopicIdPartition

Racks = dict[BrokerId, str | None]
TOPICS = [UUID(int=200 + number) for number in range(4)]


def spread(racks: Racks, partitions: int, replication_factor: int, topics: int = 4) -> PlacedReplicas:
    """Return partitions of some topics, placed as new ones are."""
    load, placed = Load(), PlacedReplicas()
    brokers = [UsableBroker(broker_id, rack, False) for broker_id, rack in racks.items()]
    for topic in TOPICS[:topics]:
        for number, replicas in enumerate(place(brokers, partitions, replication_factor, load)):
            placed.place(TopicIdPartition(topic, number), replicas)
    return placed


def carried_out(placed: PlacedReplicas, search: Callable[[], object], *, at_most: int = 10_000) -> list[Move]:
    """Apply the moves of a search until it finds no more; return them."""
    moves: list[Move] = []
    while True:
        before = len(moves)
        for move in search():  # type: ignore[attr-defined]
            if move is not None:
                assert move.before == placed.replicas[move.partition]
                placed.place(move.partition, move.after)
                moves.append(move)
                assert len(moves) <= at_most, "the search does not end"
        if len(moves) == before:
            return moves


@st.composite
def clusters(draw: st.DrawFn) -> tuple[PlacedReplicas, Racks]:
    """Draw brokers in racks, and replicas anywhere on them."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=6))
    racks: Racks = dict(enumerate(names))
    placed = PlacedReplicas()
    for topic in TOPICS[: draw(st.integers(1, 3))]:
        replication_factor = draw(st.integers(1, min(4, len(racks))))
        for number in range(draw(st.integers(0, 6))):
            replicas = draw(st.permutations(sorted(racks)))[:replication_factor]
            placed.place(TopicIdPartition(topic, number), tuple(replicas))
    return placed, racks


def most_in_a_rack(replicas: tuple[BrokerId, ...], racks: Racks) -> int:
    return max(Counter(racks[each] for each in replicas if each in racks).values(), default=0)


@given(clusters(), st.data())
def test_moves_any_cluster_keep_replication_factor_and_racks_and_end(
    cluster: tuple[PlacedReplicas, Racks], data: st.DataObject
) -> None:
    """A move that loses a replica, or a search without an end, is worse than no balance at all."""
    placed, racks = cluster
    leaving = data.draw(st.sets(st.sampled_from(sorted(racks)), max_size=len(racks) - 1))
    staying = {broker_id: rack for broker_id, rack in racks.items() if broker_id not in leaving}
    surroundings = Surroundings(staying)
    before = dict(placed.replicas)

    for search in (
        lambda: moves_off(placed, surroundings, leaving),
        lambda: moves_between_racks(placed, surroundings),
        lambda: moves_to_lighter_brokers(placed, surroundings),
        lambda: changes_of_preferred_leaders(placed, surroundings),
    ):
        for move in carried_out(placed, search):
            assert set(move.added) <= staying.keys()

    for partition, replicas in placed.replicas.items():
        assert len(set(replicas)) == len(replicas) == len(before[partition])
        if len(replicas) <= len(staying):
            assert not leaving & set(replicas)
        if len(replicas) <= len(set(staying.values())):
            assert most_in_a_rack(replicas, staying) == 1


@given(clusters())
def test_moves_for_weaker_goals_keep_stronger_ones(cluster: tuple[PlacedReplicas, Racks]) -> None:
    """An even cluster with two replicas in one rack loses both with it."""
    placed, racks = cluster
    surroundings = Surroundings(racks)
    carried_out(placed, lambda: moves_between_racks(placed, surroundings))
    carried_out(placed, lambda: moves_to_lighter_brokers(placed, surroundings))
    assert carried_out(placed, lambda: moves_between_racks(placed, surroundings)) == []
    carried_out(placed, lambda: changes_of_preferred_leaders(placed, surroundings))
    assert carried_out(placed, lambda: moves_to_lighter_brokers(placed, surroundings)) == []


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 12), st.integers(1, 3))
def test_cluster_as_placed_is_not_uneven(
    racks: int, brokers_a_rack: int, partitions: int, replication_factor: int
) -> None:
    """A cluster that is balanced must not move anything."""
    brokers: Racks = {number: f"rack{number % racks}" for number in range(racks * brokers_a_rack)}
    placed = spread(brokers, partitions, min(replication_factor, racks))
    assert not any(moves_between_racks(placed, Surroundings(brokers)))
    assert not is_uneven([len(placed.held.get(each, ())) for each in brokers])
    assert not is_uneven([placed.led[each] for each in brokers])


@given(clusters())
def test_cluster_after_its_moves_is_not_uneven_where_racks_allow_it(
    cluster: tuple[PlacedReplicas, Racks],
) -> None:
    """The moves must come below the difference at which they begin, or they begin again."""
    placed, racks = cluster
    one_rack: Racks = dict.fromkeys(racks, "a")
    carried_out(placed, lambda: moves_to_lighter_brokers(placed, Surroundings(one_rack)))
    assert not is_uneven([len(placed.held.get(each, ())) for each in racks])


def test_moves_off_lost_broker_go_to_its_rack_and_the_lightest_brokers() -> None:
    """Its rack is the one without a replica; one neighbour must not get everything."""
    racks: Racks = {number: "abc"[number % 3] for number in range(9)}
    placed = spread(racks, 30, 3)
    staying = {broker_id: rack for broker_id, rack in racks.items() if broker_id != 4}
    moves = carried_out(placed, lambda: moves_off(placed, Surroundings(staying), {4}))

    assert {racks[broker_id] for move in moves for broker_id in move.added} == {"b"}
    assert [len(placed.held[each]) for each in (1, 4, 7)] == [60, 0, 60]


def test_moves_off_more_brokers_than_can_be_spared_leave_the_last_replicas() -> None:
    """Three replicas need three brokers: the lost one's replica stays, and waits for it."""
    racks: Racks = {0: "a", 1: "b", 2: "c"}
    placed = spread(racks, 2, 3)
    assert not any(moves_off(placed, Surroundings({0: "a", 1: "b"}), {2}))


def test_moves_to_new_brokers_are_as_few_as_possible_and_even_every_topic() -> None:
    """Every move copies a log; a topic of which a new broker gets most is as uneven as before."""
    racks: Racks = {number: "abc"[number % 3] for number in range(3)}
    placed = spread(racks, 12, 3)
    racks |= {3: "a", 4: "b", 5: "c"}
    moves = carried_out(placed, lambda: moves_to_lighter_brokers(placed, Surroundings(racks)))

    assert len(moves) == 72
    assert {len(placed.held[each]) for each in racks} == {24}
    assert {number for held in placed.held_of_topic.values() for number in held.values()} == {6}
    carried_out(placed, lambda: changes_of_preferred_leaders(placed, Surroundings(racks)))
    assert max(placed.led.values()) - min(placed.led.values()) <= 1


def test_moves_to_one_new_broker_come_from_all_others_in_turn() -> None:
    """Ten and ten become seven, seven and six by six moves; ten, five and five would take eight."""
    partitions = count()
    placed = PlacedReplicas(
        {TopicIdPartition(TOPICS[0], next(partitions)): (each,) for each in (0, 1) for _ in range(10)}
    )
    moves = carried_out(
        placed, lambda: moves_to_lighter_brokers(placed, Surroundings({0: "a", 1: "b", 2: "c"}))
    )
    assert len(moves) == 6
    assert [len(placed.held[each]) for each in range(3)] == [7, 7, 6]


def test_moves_to_a_busy_broker_wait() -> None:
    """A new broker that copies everything at once serves no client."""
    placed = spread({0: "a"}, 8, 1)
    surroundings = Surroundings({0: "a", 1: "a"}, is_busy=lambda broker_id: len(placed.held[broker_id]) >= 3)
    assert len(carried_out(placed, lambda: moves_to_lighter_brokers(placed, surroundings))) == 3
    assert not any(moves_off(placed, Surroundings({1: "a"}, is_busy=lambda _: True), {0}))


@pytest.mark.parametrize("frozen", [True, False])
def test_moves_of_partitions_that_must_not_move_are_none(frozen: bool) -> None:
    """A partition that an administrator moves is left to the administrator."""
    placed = spread({0: "a"}, 4, 1)
    surroundings = Surroundings({1: "a"}, may_move=lambda _: not frozen)
    assert any(moves_off(placed, surroundings, {0})) is not frozen
