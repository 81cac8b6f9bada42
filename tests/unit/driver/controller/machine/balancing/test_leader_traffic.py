"""The traffic of leaders: figures that follow leaderships, and the leaderships that move for it."""

from collections.abc import Collection
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.controller.machine.balancing.goals import GOALS, moves_to_less_busy_leaders
from sparklog.driver.controller.machine.balancing.leader_traffic import (
    KEPT_MS,
    STALE_MS,
    Direction,
    LeaderTraffic,
    Rates,
    TrafficLimits,
)
from sparklog.driver.controller.machine.balancing.moves import Goal, Surroundings
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.balancing.plan import plan
from sparklog.protocol.types import BrokerId, TopicIdPartition

MIB = 1 << 20
Placements = list[tuple[BrokerId, ...]]


def key(number: int) -> TopicIdPartition:
    return TopicIdPartition(UUID(int=1), number)


@pytest.fixture
def traffic() -> LeaderTraffic:
    """Broker 0 leads partitions 0 and 1 with 30 and 10 bytes per second, broker 1 others with 5."""
    traffic = LeaderTraffic()
    replicas = {key(0): (0, 1), key(1): (0, 1)}
    traffic.reported(0, Rates(40, 4), {key(0): Rates(30, 3), key(1): Rates(10, 1)}, replicas, 0)
    traffic.reported(1, Rates(5, 0), {}, replicas, 0)
    return traffic


def loads(traffic: LeaderTraffic) -> list[Rates]:
    return [traffic.load(0), traffic.load(1)]


def test_load_moves_with_a_leadership_at_once_and_is_counted_once(traffic: LeaderTraffic) -> None:
    """The broker that led reports it for five minutes more, the new one only after these."""
    traffic.placed(key(0), 1)
    assert loads(traffic) == [Rates(10, 1), Rates(35, 3)]
    replicas = {key(0): (1, 0), key(1): (0, 1)}
    traffic.reported(0, Rates(40, 4), {key(0): Rates(30, 3), key(1): Rates(10, 1)}, replicas, 10)
    assert loads(traffic) == [Rates(10, 1), Rates(35, 3)]
    traffic.reported(0, Rates(10, 1), {key(1): Rates(10, 1)}, replicas, 20)
    assert loads(traffic) == [Rates(10, 1), Rates(35, 3)]
    traffic.reported(1, Rates(37, 3), {key(0): Rates(32, 3)}, replicas, 30)
    assert loads(traffic) == [Rates(10, 1), Rates(37, 3)]


def test_partition_without_reports_for_long_counts_as_idle(traffic: LeaderTraffic) -> None:
    """Its producer has ended."""
    replicas = {key(0): (0, 1), key(1): (0, 1)}
    traffic.reported(0, Rates(10, 1), {key(1): Rates(10, 1)}, replicas, KEPT_MS)
    assert traffic.load(0) == Rates(40, 4)
    traffic.reported(0, Rates(10, 1), {key(1): Rates(10, 1)}, replicas, KEPT_MS + 1)
    assert traffic.load(0) == Rates(10, 1)


def test_partition_measured_by_a_broker_that_has_gone_counts_as_idle_too(traffic: LeaderTraffic) -> None:
    """A lost broker reports no more; its partitions would burden their next leaders for ever."""
    traffic.placed(key(0), 1)
    traffic.reported(1, Rates(5, 0), {}, {key(0): (1,)}, KEPT_MS)
    assert traffic.load(1) == Rates(35, 3)
    traffic.reported(1, Rates(5, 0), {}, {key(0): (1,)}, KEPT_MS + 1)
    assert traffic.load(1) == Rates(5, 0)


def test_deleted_partition_has_no_traffic(traffic: LeaderTraffic) -> None:
    """Nor does a report that was under way bring it back."""
    traffic.removed(key(0))
    assert traffic.load(0) == Rates(10, 1)
    traffic.reported(0, Rates(40, 4), {key(0): Rates(30, 3)}, {key(1): (0, 1)}, 10)
    assert traffic.load(0) == Rates(20, 2)


def test_limits_broker_that_is_silent_or_has_just_begun_are_not_known(traffic: LeaderTraffic) -> None:
    """A broker without figures would pass for idle."""
    assert traffic.limits((0, 1), Direction.IN) is not None
    assert traffic.limits((0, 1, 2), Direction.IN) is None
    assert traffic.limits((), Direction.IN) is None
    traffic.note_time(STALE_MS)
    assert traffic.is_known((0, 1))
    traffic.note_time(STALE_MS + 1)
    assert not traffic.is_known((0, 1))
    traffic.note_time(0)
    traffic.unmeasured(1)
    assert not traffic.is_known((0, 1))


def cluster(placements: Placements, rates_mib: list[tuple[int, int]], brokers: int) -> PlacedReplicas:
    """Return a cluster whose brokers have reported the traffic of all partitions, in MiB per second."""
    placed = PlacedReplicas({key(number): each for number, each in enumerate(placements)})
    for broker_id in range(brokers):
        rates = {
            key(number): Rates(rates_mib[number][0] * MIB, rates_mib[number][1] * MIB)
            for number, replicas in enumerate(placements)
            if replicas[0] == broker_id
        }
        whole = Rates(sum(each.bytes_in for each in rates.values()), sum(each[1] for each in rates.values()))
        placed.traffic.reported(broker_id, whole, rates, placed.replicas, 0)
    return placed


def moves_of(placed: PlacedReplicas, brokers: int) -> list[tuple[int, tuple[BrokerId, ...], Goal]]:
    moves = plan(placed, Surroundings(dict.fromkeys(range(brokers), "a")), ())
    return [(move.partition.partition, move.after, move.goal) for move in moves]


def test_plan_gives_the_leadership_with_the_most_bytes_to_a_less_busy_broker_that_leads_fewer() -> None:
    """The copies are there: a change of the leader costs milliseconds."""
    placed = cluster([(0, 1), (0, 1), (0, 1), (1, 0)], [(20, 0), (18, 0), (0, 0), (0, 0)], 2)
    assert moves_of(placed, 2) == [(0, (1, 0), Goal.BYTES_IN)]


def test_plan_exchanges_leaderships_where_numbers_are_equal() -> None:
    """Brokers go on to lead equally many partitions."""
    placed = cluster([(0, 1), (0, 1), (1, 0), (1, 0)], [(20, 0), (18, 0), (1, 0), (0, 0)], 2)
    assert moves_of(placed, 2) == [(0, (1, 0), Goal.BYTES_IN), (2, (0, 1), Goal.BYTES_IN)]


def test_plan_for_bytes_out_takes_no_broker_above_the_bounds_of_bytes_in() -> None:
    """Partition 0 is read most, but most is written to it as well."""
    rates = [(30, 40), (2, 30), (0, 0), (14, 0), (2, 0), (16, 0)]
    placed = cluster([(0, 1)] * 3 + [(1, 0)] * 3, rates, 2)
    assert moves_of(placed, 2) == [(1, (1, 0), Goal.BYTES_OUT), (4, (0, 1), Goal.BYTES_OUT)]


def test_plan_for_traffic_within_the_bounds_is_empty() -> None:
    """Traffic changes all the time, and a little of it is no reason for anything."""
    turns: Placements = [(0, 1), (0, 1), (1, 0), (1, 0)]
    assert moves_of(cluster(turns, [(60, 0), (55, 0), (50, 0), (35, 0)], 2), 2) == []
    assert moves_of(cluster(turns, [(1, 1), (1, 0), (0, 0), (0, 0)], 2), 2) == []


def test_plan_leaves_a_partition_whose_leader_is_busy_by_it_alone() -> None:
    """Any other broker would be as busy."""
    assert moves_of(cluster([(0, 1), (1, 0)], [(90, 0), (1, 0)], 2), 2) == []


@st.composite
def clusters(draw: st.DrawFn) -> tuple[PlacedReplicas, Surroundings]:
    brokers = draw(st.integers(2, 6))
    factor = draw(st.integers(1, min(3, brokers)))
    count = draw(st.integers(1, 16))
    placements = [tuple(draw(st.permutations(range(brokers)))[:factor]) for _ in range(count)]
    rate = st.sampled_from([0, 0, 1, 5, 20, 50])
    rates = draw(st.lists(st.tuples(rate, rate), min_size=count, max_size=count))
    racks: dict[BrokerId, str | None] = {each: draw(st.sampled_from("ab")) for each in range(brokers)}
    return cluster(placements, rates, brokers), Surroundings(racks)


@given(clusters())
def test_plan_of_any_traffic_ends_and_then_rests(drawn: tuple[PlacedReplicas, Surroundings]) -> None:
    """Equal numbers of leaders and equal traffic pull in two directions; nothing may go there and back."""
    placed, surroundings = drawn
    plan(placed, surroundings, ())
    assert plan(placed, surroundings, ()) == []


@given(clusters(), st.sampled_from(Direction))
def test_leaderships_that_move_for_traffic_harm_no_stronger_goal(
    drawn: tuple[PlacedReplicas, Surroundings], direction: Direction
) -> None:
    """Numbers of leaders stay as equal, and for bytes out no broker gets more bytes in than it may."""
    placed, surroundings = drawn
    limits = {each: placed.traffic.limits(surroundings.racks, each) for each in Direction}
    led, excess = squares(placed), excesses(surroundings.racks, limits)
    for move in moves_to_less_busy_leaders(placed, surroundings, direction):
        if move is not None:
            assert not move.added
            assert set(move.before) == set(move.after)
            placed.place(move.partition, move.after)
    assert squares(placed) <= led
    after = excesses(surroundings.racks, limits)
    assert after[direction] <= excess[direction]
    assert after[Direction.IN] <= excess[Direction.IN]


def squares(placed: PlacedReplicas) -> int:
    return sum(led * led for led in placed.led.values())


def excesses(
    racks: Collection[BrokerId], limits: dict[Direction, TrafficLimits | None]
) -> dict[Direction, float]:
    """Return the sum of the squares of what brokers have above the bounds, in bytes per second."""
    found = {}
    for direction, bounds in limits.items():
        assert bounds is not None
        found[direction] = sum(max(0.0, bounds.excess(each)) ** 2 for each in racks)
    return found


def test_goals_for_traffic_come_last() -> None:
    """They are the cheapest to reach, and change most often."""
    assert [each.goal for each in GOALS[-3:]] == [Goal.LEADERS, Goal.BYTES_IN, Goal.BYTES_OUT]
