"""The use of brokers' disks: measurements that count, replicas that move meanwhile, and shared disks."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.controller.machine.balancing.disks import (
    OLDEST_MS,
    STALE_MS,
    DiskReport,
    Disks,
    DiskVolume,
)
from sparklog.driver.controller.machine.balancing.goals import GOALS
from sparklog.driver.controller.machine.balancing.moves import Goal, Surroundings, moves_off
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.balancing.plan import plan
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import LeaderRecoveryState
from sparklog.protocol.types import BrokerId, TopicIdPartition

SETTLES_IN_MS = 1_000
CAPACITY = 1_000
Sizes = dict[TopicIdPartition, int]


def key(number: int) -> TopicIdPartition:
    return TopicIdPartition(UUID(int=1), number)


def report(
    log_bytes: int, measured_ms: int, sizes: Sizes | None = None, *, volume: int = 0, others: int = 0
) -> DiskReport:
    volumes = {volume: DiskVolume(log_bytes, CAPACITY - log_bytes)}
    return DiskReport(volumes, sizes or {}, others, measured_ms)


def partition(
    *replicas: BrokerId, adding: tuple[BrokerId, ...] = (), removing: tuple[BrokerId, ...] = ()
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas,
        isr=replicas,
        removing_replicas=removing,
        adding_replicas=adding,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(UUID(int=100 + each) for each in replicas),
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
    )


@pytest.fixture
def disks() -> Disks:
    """Two brokers with disks of their own, of which broker 0 has used 600 of 1,000 bytes, broker 1 200."""
    disks = Disks()
    disks.note_time(0, SETTLES_IN_MS)
    disks.note_time(SETTLES_IN_MS, SETTLES_IN_MS)
    disks.reported(0, report(600, SETTLES_IN_MS, {key(0): 300}, volume=0, others=7))
    disks.reported(1, report(200, SETTLES_IN_MS, volume=1))
    return disks


def shares(disks: Disks) -> list[float]:
    limits = disks.limits((0, 1))
    assert limits is not None
    return [limits.share_of(0), limits.share_of(1)]


def test_limits_broker_without_a_report_are_not_known(disks: Disks) -> None:
    """A mean of some brokers says nothing about the others."""
    assert disks.limits((0, 1)) is not None
    assert disks.limits((0, 1, 2)) is None
    assert disks.limits(()) is None


def test_limits_broker_silent_for_too_long_are_not_known(disks: Disks) -> None:
    """A disk may have filled meanwhile."""
    disks.note_time(SETTLES_IN_MS + STALE_MS, SETTLES_IN_MS)
    assert disks.limits((0, 1)) is not None
    disks.note_time(SETTLES_IN_MS + STALE_MS + 1, SETTLES_IN_MS)
    assert disks.limits((0, 1)) is None
    assert not disks.is_too_full_for(0, 900)


def test_report_from_before_the_controller_began_does_not_count() -> None:
    """A replica that moved under the driver before may still lie on the broker that it left."""
    disks = Disks()
    disks.note_time(0, SETTLES_IN_MS)
    disks.reported(0, report(600, SETTLES_IN_MS - 1))
    assert disks.limits((0,)) is None
    disks.reported(0, report(600, SETTLES_IN_MS))
    assert disks.limits((0,)) is not None


def test_replica_that_moves_counts_at_its_target_alone_and_once(disks: Disks) -> None:
    """Measured while it is copied it is on both, and on the source until its files are deleted."""
    before = partition(0)
    moving = partition(0, 1, adding=(1,), removing=(0,))
    disks.placed(key(0), (0,), (1,))
    disks.changed(before, moving)
    assert shares(disks) == [0.3, 0.5]
    for measured_ms, copied in ((2_000, 100), (3_000, 300)):
        disks.note_time(measured_ms, SETTLES_IN_MS)
        disks.reported(0, report(600, measured_ms, {key(0): 300}, volume=0))
        disks.reported(1, report(200 + copied, measured_ms, {key(0): copied}, volume=1))
        assert shares(disks) == [0.3, 0.5]
    disks.changed(moving, partition(1))
    disks.reported(0, report(600, 3_000 + SETTLES_IN_MS - 1, volume=0))
    assert shares(disks) == [0.3, 0.5]
    disks.note_time(4_000, SETTLES_IN_MS)
    disks.reported(0, report(310, 3_000 + SETTLES_IN_MS, volume=0))
    disks.reported(1, report(520, 3_000 + SETTLES_IN_MS, volume=1))
    assert shares(disks) == [0.31, 0.52]


def test_replica_of_a_copy_without_an_end_leaves_its_brokers_unknown_in_the_end(disks: Disks) -> None:
    """The growth of their other files in an hour is not known."""
    disks.changed(partition(0), partition(0, 1, adding=(1,), removing=(0,)))
    now_ms = SETTLES_IN_MS + OLDEST_MS
    for each in (now_ms, now_ms + 1):
        disks.note_time(each, SETTLES_IN_MS)
        disks.reported(0, report(600, each, volume=0))
        disks.reported(1, report(200, each, volume=1))
        assert (disks.limits((0, 1)) is None) == (each > now_ms)


def test_deleted_partition_that_moved_lets_measurements_count_again(disks: Disks) -> None:
    """Its move has no other end."""
    moving = partition(0, 1, adding=(1,), removing=(0,))
    disks.changed(partition(0), moving)
    disks.deleted(moving)
    disks.note_time(9_000, SETTLES_IN_MS)
    disks.reported(0, report(100, 9_000, volume=0))
    assert shares(disks) == [0.1, 0.2]


def test_broker_that_was_away_is_measured_once_its_former_logs_are_deleted(disks: Disks) -> None:
    """It has all that was moved off it meanwhile, and has not opened its logs before it is active."""
    disks.went(0)
    disks.placed(key(0), (0,), (1,))
    disks.note_time(9_000, SETTLES_IN_MS)
    disks.reported(0, report(0, 9_000, volume=0))
    disks.came(0)
    assert shares(disks) == [0.3, 0.5]
    for measured_ms, log_bytes, share in ((9_999, 600, 0.3), (10_000, 310, 0.31)):
        disks.note_time(measured_ms, SETTLES_IN_MS)
        disks.reported(0, report(log_bytes, measured_ms, volume=0))
        assert shares(disks) == [share, 0.5]


def test_broker_that_is_new_is_measured_at_once(disks: Disks) -> None:
    """The moves that fill it begin at once, and need to know how large its disks are."""
    disks.came(2)
    disks.reported(2, report(0, SETTLES_IN_MS, volume=2))
    assert disks.limits((0, 1, 2)) is not None


def test_replicas_that_grow_count_while_moves_keep_measurements_from_it(disks: Disks) -> None:
    """Moves that go on for an hour would otherwise fill a disk that is full already."""
    disks.changed(partition(0), partition(0, 1, adding=(1,), removing=(0,)))
    disks.created(key(1), (0, 1))
    assert shares(disks) == [0.6, 0.2]
    disks.reported(0, report(740, 2_000, {key(0): 340, key(1): 100, key(7): 50}, volume=0))
    assert shares(disks) == [0.74, 0.2], "what is not known to be there does not count"
    disks.reported(1, report(400, 2_000, {key(1): 90}, volume=1))
    disks.placed(key(0), (0,), (1,))
    assert shares(disks) == [0.4, 0.63]
    disks.reported(1, report(500, 3_000, {key(0): 100, key(1): 100}, volume=1))
    assert shares(disks) == [0.4, 0.64]
    disks.reported(1, report(860, 4_000, {key(0): 360, key(1): 100}, volume=1))
    assert shares(disks) == [0.4, 0.66]
    disks.placed(key(1), (0, 1), (1,))
    assert shares(disks) == [0.3, 0.66]


def test_deleted_partition_is_taken_away_from_the_uses_that_it_is_in(disks: Disks) -> None:
    """Its broker would count as full as long as others of its replicas move."""
    disks.changed(partition(0), partition(0, 1, adding=(1,), removing=(0,)))
    disks.placed(key(0), (0,), (1,))
    assert shares(disks) == [0.3, 0.5]
    disks.removed(key(0), (1,))
    disks.removed(key(5), (0, 1))
    assert shares(disks) == [0.3, 0.2]


@pytest.mark.parametrize(("deleted_bytes", "share"), [(300, 0.3), (0, 0.6)])
def test_files_of_deleted_partition_are_waited_for_if_they_are_large(
    disks: Disks, deleted_bytes: int, share: float
) -> None:
    """Small topics that come and go all the time would keep all measurements from counting."""
    disks.reported(0, report(600, SETTLES_IN_MS, {key(0): deleted_bytes}, volume=0))
    disks.removed(key(0), (0,))
    disks.note_time(SETTLES_IN_MS + 100, SETTLES_IN_MS)
    disks.reported(0, report(600, SETTLES_IN_MS + 100, volume=0))
    assert shares(disks) == [share, 0.2]


def test_brokers_in_one_file_system_have_one_share_and_move_nothing_between_them() -> None:
    """Two executors of a host would pass their replicas to each other for ever."""
    disks = Disks()
    disks.note_time(0, 0)
    for broker_id, log_bytes in ((0, 500), (1, 0)):
        volumes = {"shared": DiskVolume(log_bytes, 500)}
        disks.reported(broker_id, DiskReport(volumes, {key(0): 500}, 0, 0))
    limits = disks.limits((0, 1))
    assert limits is not None
    assert [limits.share_of(0), limits.share_of(1)] == [0.5, 0.5]
    assert not limits.are_missed
    assert limits.allow(0, 1, 500)


def test_brokers_that_get_directories_in_one_file_system_are_measured_together() -> None:
    """A broker may come back elsewhere, and its former measurement is another disk's."""
    disks = Disks()
    disks.note_time(0, 0)
    disks.reported(0, report(500, 0, volume=0))
    disks.reported(1, report(0, 0, volume=1))
    disks.reported(1, report(0, 0, volume=0))
    limits = disks.limits((0, 1))
    assert limits is not None
    assert limits.share_pool(0, 1)


def test_size_of_replica_is_the_largest_reported_or_a_mean(disks: Disks) -> None:
    """A follower that is behind has less than will be copied."""
    disks.reported(1, report(200, SETTLES_IN_MS, {key(0): 299}, volume=1))
    assert disks.size_of(key(0), (0, 1)) == 300
    assert disks.size_of(key(5), (0,)) == 7
    assert disks.size_of(key(5), (8,)) == 0


def test_disk_that_is_full_is_too_full_for_any_replica(disks: Disks) -> None:
    """A full disk takes the directory, and all of its replicas, offline."""
    assert disks.is_too_full_for(0, 201)
    assert not disks.is_too_full_for(0, 200)
    assert not disks.is_too_full_for(0, 0)
    assert not disks.is_too_full_for(7, 900), "not known"


def cluster(
    placements: list[tuple[BrokerId, ...]], sizes: list[int], brokers: int, used_by_others: list[int]
) -> PlacedReplicas:
    """Return a cluster whose brokers have disks of 1,000 bytes and have reported all sizes."""
    placed = PlacedReplicas({key(number): each for number, each in enumerate(placements)})
    placed.disks.note_time(0, 0)
    for broker_id in range(brokers):
        held = {each: sizes[each.partition] for each in placed.held.get(broker_id, ())}
        used = sum(held.values())
        free = max(0, CAPACITY - used - used_by_others[broker_id])
        volumes = {broker_id: DiskVolume(used, free)}
        placed.disks.reported(broker_id, DiskReport(volumes, held, 0, 0))
    return placed


@st.composite
def clusters(draw: st.DrawFn) -> tuple[PlacedReplicas, dict[BrokerId, str | None]]:
    brokers = draw(st.integers(2, 6))
    racks: dict[BrokerId, str | None] = {each: draw(st.sampled_from("ab")) for each in range(brokers)}
    factor = draw(st.integers(1, 2))
    count = draw(st.integers(1, 12))
    placements = [tuple(draw(st.permutations(range(brokers)))[:factor]) for _ in range(count)]
    sizes = draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    others = draw(st.lists(st.sampled_from([0, 0, 300, 900]), min_size=brokers, max_size=brokers))
    return cluster(placements, sizes, brokers, others), racks


@given(clusters())
def test_plan_of_any_sizes_ends_and_then_rests(
    drawn: tuple[PlacedReplicas, dict[BrokerId, str | None]],
) -> None:
    """Numbers of replicas and bytes on disks pull in two directions; nothing may go there and back."""
    placed, racks = drawn
    plan(placed, Surroundings(racks), ())
    assert plan(placed, Surroundings(racks), ()) == []


@given(clusters(), st.data())
def test_move_for_disks_or_numbers_leaves_no_broker_outside_of_the_bounds(
    drawn: tuple[PlacedReplicas, dict[BrokerId, str | None]], data: st.DataObject
) -> None:
    """No goal pays for another one with a disk."""
    placed, racks = drawn
    surroundings = Surroundings(racks)
    for pursued in data.draw(st.permutations([each for each in GOALS if each.goal is not Goal.RACKS])):
        for move in pursued.search(placed, surroundings):
            if move is None:
                continue
            limits = placed.disks.limits(racks)
            assert limits is not None
            was_over = {each: limits.is_over(each) for each in racks}
            was_under = {each: limits.is_under(each) for each in racks}
            size_bytes = placed.disks.size_of(move.partition, move.before)
            placed.place(move.partition, move.after)
            if size_bytes:
                assert not any(limits.is_over(each) for each in move.added)
                assert not any(was_over[each] for each in move.added)
            for each in racks:
                assert limits.is_over(each) <= was_over[each]
                assert limits.is_under(each) <= was_under[each]


def test_plan_moves_the_largest_replicas_that_fit_off_the_fullest_disk() -> None:
    """Few moves are enough, and the largest replica would only turn the difference around."""
    placed = cluster([(0,), (0,), (0,), (1,)], [500, 240, 20, 20], 2, [0, 0])
    moves = plan(placed, Surroundings({0: "a", 1: "a"}), ())
    assert [(each.partition, each.after, each.goal) for each in moves] == [
        (key(number), (1,), Goal.DISKS) for number in (1, 2)
    ]


def test_plan_of_disks_that_differ_by_less_than_the_bounds_is_empty() -> None:
    """Logs grow and are deleted all the time."""
    assert plan(cluster([(0,), (1,)], [500, 320], 2, [0, 0]), Surroundings({0: "a", 1: "a"}), ()) == []


def test_move_for_disks_keeps_replicas_in_different_racks() -> None:
    """The emptiest disk may be in the rack of another replica."""
    placed = cluster([(0, 1), (0, 1)], [300, 300], 4, [0, 0, 0, 0])
    racks = {0: "a", 1: "b", 2: "b", 3: "a"}
    moves = plan(placed, Surroundings(racks), ())
    assert moves
    assert all({racks[each] for each in replicas} == {"a", "b"} for replicas in placed.replicas.values())


def test_replica_of_a_lost_broker_goes_to_a_disk_with_room_if_there_is_one() -> None:
    """Not to heal would be worse: then a full disk gets it."""
    placed = cluster([(0,), (2,), (2,), (2,)], [300, 200, 10, 10], 3, [0, 700, 0])
    surroundings = Surroundings({1: "a", 2: "a"})
    assert next(each for each in moves_off(placed, surroundings, {0}) if each).after == (2,)
    surroundings = replace(surroundings, racks={1: "a"})
    assert next(each for each in moves_off(placed, surroundings, {0}) if each).after == (1,)
