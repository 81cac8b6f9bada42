from collections.abc import Mapping
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.coordinators.groups.machine.assignors import (
    ASSIGNORS,
    Assignment,
    GroupSpecification,
    MemberSpecification,
)
from tests.examples import examples

TOPICS = tuple(UUID(int=number) for number in range(1, 6))
A, B, C, D, E = TOPICS
assign_range = ASSIGNORS["range"]
assign_uniform = ASSIGNORS["uniform"]


def members(*subscriptions: set[UUID], **had: Assignment) -> dict[str, MemberSpecification]:
    return {
        f"m{index}": MemberSpecification(None, frozenset(topics), had.get(f"m{index}", {}))
        for index, topics in enumerate(subscriptions)
    }


def load(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def plain(assigned: Mapping[str, Assignment]) -> dict[str, dict[UUID, set[int]]]:
    return {name: {topic: set(numbers) for topic, numbers in one.items()} for name, one in assigned.items()}


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool = False) -> GroupSpecification:
    """A group with some earlier assignment, in which a topic may have grown, gone or been left since."""
    metrics = {topic: draw(st.integers(1, 7)) for topic in TOPICS}
    names = [f"m{index}" for index in range(draw(st.integers(1, 7)))]
    subscription = st.frozensets(st.sampled_from(TOPICS))
    common = draw(subscription)
    earlier: dict[str, dict[UUID, set[int]]] = {name: {} for name in names}
    for topic in TOPICS:
        for partition in range(draw(st.integers(0, metrics[topic]))):
            owner = draw(st.sampled_from([*names, None]))
            if owner is not None:
                earlier[owner].setdefault(topic, set()).add(partition)
    return GroupSpecification(
        {
            name: MemberSpecification(
                draw(st.sampled_from([None, f"i-{name}"])),
                common if homogeneous else draw(subscription),
                {topic: frozenset(numbers) for topic, numbers in earlier[name].items()},
            )
            for name in names
        },
        metrics,
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@examples(20)
@given(group=groups())
def test_assignor_any_group_gives_every_subscribed_partition_to_one_subscriber(
    name: str, group: GroupSpecification
) -> None:
    """A partition that is left out is read by nobody; one that two have is read twice."""
    assigned = ASSIGNORS[name](group)

    assert set(assigned) == set(group.members)
    given_out = [
        (topic, partition)
        for member_id, assignment in assigned.items()
        for topic, partitions in assignment.items()
        for partition in partitions
        if topic in group.members[member_id].subscribed_topic_ids
    ]
    subscribed = frozenset().union(*(member.subscribed_topic_ids for member in group.members.values()))
    assert sorted(given_out) == [
        (topic, n) for topic in sorted(subscribed) for n in range(group.partition_counts[topic])
    ]
    assert sum(map(load, assigned.values())) == len(given_out)
    assert all(partitions for assignment in assigned.values() for partitions in assignment.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@examples(20)
@given(group=groups(), order=st.randoms(use_true_random=False))
def test_assignor_members_in_another_order_get_the_same(
    name: str, group: GroupSpecification, order: Random
) -> None:
    """A coordinator that has loaded the group has its members in another order than the one before it."""
    shuffled = list(group.members.items())
    order.shuffle(shuffled)

    assert ASSIGNORS[name](group) == ASSIGNORS[name](
        GroupSpecification(dict(shuffled), group.partition_counts)
    )


@examples(20)
@given(group=groups(homogeneous=True))
def test_uniform_same_subscriptions_gives_members_equally_many_and_moves_no_more_than_that_takes(
    group: GroupSpecification,
) -> None:
    """Whatever moves is read from its last commit again, by a member that has to open it first."""
    assigned = assign_uniform(group)

    loads = sorted(map(load, assigned.values()))
    assert loads[-1] - loads[0] <= 1
    # At best as many members as there are odd partitions keep one more than the quota.
    topics = next(iter(group.members.values())).subscribed_topic_ids
    had = sorted(
        (
            sum(len(numbers) for topic, numbers in member.assignment.items() if topic in topics)
            for member in group.members.values()
        ),
        reverse=True,
    )
    quota, odd = divmod(sum(group.partition_counts[topic] for topic in topics), len(group.members))
    could_stay = sum(min(count, quota + (index < odd)) for index, count in enumerate(had))
    stayed = sum(
        len(numbers & assigned[name].get(topic, frozenset()))
        for name, member in group.members.items()
        for topic, numbers in member.assignment.items()
    )
    assert stayed == could_stay


@examples(20)
@given(group=groups())
def test_uniform_other_subscriptions_leaves_no_move_that_would_balance_a_topic_better(
    group: GroupSpecification,
) -> None:
    """With few members the rounds suffice, so that no partition is better off elsewhere."""
    assigned = assign_uniform(group)

    for giver, assignment in assigned.items():
        for topic in assignment:
            for taker, member in group.members.items():
                if topic in member.subscribed_topic_ids:
                    assert load(assigned[giver]) - load(assigned[taker]) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@examples(20)
@given(group=groups())
def test_assignor_asked_again_changes_nothing(name: str, group: GroupSpecification) -> None:
    """A group's epoch rises for reasons that are none to move anything, such as a new client id."""
    assigned = ASSIGNORS[name](group)
    again = GroupSpecification(
        {key: member._replace(assignment=assigned[key]) for key, member in group.members.items()},
        group.partition_counts,
    )

    assert ASSIGNORS[name](again) == assigned


def test_uniform_member_leaves_moves_only_what_it_had() -> None:
    group = members(
        {A}, {A}, {A}, m0={A: frozenset({0, 3})}, m1={A: frozenset({1, 4})}, m2={A: frozenset({2, 5})}
    )
    del group["m1"]

    assert plain(assign_uniform(GroupSpecification(group, {A: 6}))) == {
        "m0": {A: {0, 1, 3}},
        "m2": {A: {2, 4, 5}},
    }


def test_uniform_member_that_has_the_odd_partition_keeps_it_from_an_earlier_one() -> None:
    """Or a partition would change hands each time a member joins whose id comes before the others'."""
    group = members({A}, {A}, m0={A: frozenset({0})}, m1={A: frozenset({1, 2})})

    assert plain(assign_uniform(GroupSpecification(group, {A: 3}))) == {"m0": {A: {0}}, "m1": {A: {1, 2}}}


def test_uniform_topic_that_grew_gives_what_is_new_to_whoever_has_least() -> None:
    group = members({A, B}, {A, B}, m0={A: frozenset({0, 1})}, m1={B: frozenset({0})})

    assert plain(assign_uniform(GroupSpecification(group, {A: 3, B: 1}))) == {
        "m0": {A: {0, 1}},
        "m1": {A: {2}, B: {0}},
    }


def test_uniform_other_subscriptions_lets_those_with_a_choice_stand_back() -> None:
    """The only reader of a topic has all of it, so the topic that it shares goes to the others."""
    group = members({A, B}, {B}, {B})

    assert plain(assign_uniform(GroupSpecification(group, {A: 4, B: 4}))) == {
        "m0": {A: {0, 1, 2, 3}},
        "m1": {B: {0, 2}},
        "m2": {B: {1, 3}},
    }


def test_uniform_other_subscriptions_moves_from_the_member_that_has_too_much() -> None:
    group = members({A}, {A}, {A, B}, m0={A: frozenset(range(5))}, m2={B: frozenset({0})})

    assert plain(assign_uniform(GroupSpecification(group, {A: 5, B: 1}))) == {
        "m0": {A: {0, 1}},
        "m1": {A: {3, 4}},
        "m2": {A: {2}, B: {0}},
    }


def test_range_equal_topics_gives_a_member_the_same_numbers_of_each() -> None:
    """Joins read a key's partition of both topics in one member."""
    assert plain(assign_range(GroupSpecification(members({A, B}, {A, B}), {A: 3, B: 3}))) == {
        "m0": {A: {0, 1}, B: {0, 1}},
        "m1": {A: {2}, B: {2}},
    }


def test_range_more_members_than_partitions_leaves_the_last_without() -> None:
    assert plain(assign_range(GroupSpecification(members({A}, {A}, {A}), {A: 2}))) == {
        "m0": {A: {0}},
        "m1": {A: {1}},
        "m2": {},
    }


def test_range_static_members_come_first_in_the_order_of_their_instances() -> None:
    """Their member ids change with every restart, their instance ids and so their ranges do not."""
    group = {
        "a": MemberSpecification(None, {A}),
        "b": MemberSpecification("second", {A}),
        "c": MemberSpecification("first", {A}),
    }

    assert plain(assign_range(GroupSpecification(group, {A: 3}))) == {
        "a": {A: {2}},
        "b": {A: {1}},
        "c": {A: {0}},
    }


def test_range_other_subscriptions_divides_each_topic_among_its_subscribers() -> None:
    assert plain(assign_range(GroupSpecification(members({A, B}, {B}, {A}), {A: 4, B: 3}))) == {
        "m0": {A: {0, 1}, B: {0, 1}},
        "m1": {B: {2}},
        "m2": {A: {2, 3}},
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignor_group_without_members_has_no_assignments(name: str) -> None:
    assert ASSIGNORS[name](GroupSpecification({}, {})) == {}
