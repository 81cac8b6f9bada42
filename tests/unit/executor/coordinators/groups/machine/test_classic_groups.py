"""The classic protocol, decided about by a machine without a log."""

import pytest
from kio.schema.errors import ErrorCode

from sparklog.executor.coordinators.groups.machine.group_machine import ACTIONS_AT_ONCE
from sparklog.executor.coordinators.machine.coordinator_machine import NOTHING, Now
from sparklog.executor.coordinators.records.consumer_offsets import GroupMetadataValue
from tests.unit.executor.coordinators.groups.group_conversation import (
    CONSUMER_METADATA,
    GROUP,
    GroupConversation,
)

RANGE = ("range", CONSUMER_METADATA)
STICKY = ("cooperative-sticky", CONSUMER_METADATA)


def state(groups: GroupConversation) -> str:
    return groups.machine.groups[GROUP].state_name


# ---- joining -----------------------------------------------------------------------------------------


def test_new_member_is_told_its_id_first_and_joins_with_it_then() -> None:
    """A client that gives up and asks again must leave no unknown members behind (KIP-394)."""
    groups = GroupConversation()
    refused = groups.join("first", new_member_id="a")
    assert (refused.error_code, refused.member_id) == (ErrorCode.member_id_required, "a")
    assert groups.join("second", "a") is None
    groups.pass_time(2_999)
    assert "second" not in groups.answers
    groups.pass_time(1)
    joined = groups.answers["second"]
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.none, 1, "a")
    assert [member.member_id for member in joined.members] == ["a"]


def test_old_client_joins_without_being_told_its_id_first() -> None:
    """JoinGroup before version 4 knows no MEMBER_ID_REQUIRED."""
    groups = GroupConversation()
    assert groups.join("old", needs_known_member_id=False, new_member_id="a") is None
    groups.pass_time(3_000)
    assert groups.answers["old"].member_id == "a"


def test_first_rebalance_waits_longer_while_members_come_and_not_beyond_the_rebalance_timeout() -> None:
    """A deployment of many members starts with one rebalance, not with one each."""
    groups = GroupConversation()
    for number in range(3):
        member = groups.join(f"{number}?", rebalance_timeout_ms=8_000).member_id
        groups.join(f"{number}", member, rebalance_timeout_ms=8_000)
        groups.pass_time(2_500)
        assert "0" not in groups.answers
    assert state(groups) == "PreparingRebalance"
    groups.pass_time(500)
    assert {groups.answers[f"{number}"].generation_id for number in range(3)} == {1}


@pytest.mark.parametrize(
    ("asked", "error_code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
    ],
)
def test_join_of_a_new_group_with_what_cannot_be_is_refused(asked: dict, error_code: ErrorCode) -> None:  # type: ignore[type-arg]
    """Each with the error that Kafka gives."""
    groups = GroupConversation()
    assert groups.join("bad", **asked).error_code is error_code


@pytest.mark.parametrize(
    "asked", [{"protocols": (STICKY,)}, {"protocol_type": "connect"}], ids=["assignor", "type"]
)
def test_join_without_a_protocol_in_common_is_refused_and_the_group_goes_on(asked: dict) -> None:  # type: ignore[type-arg]
    """One wrong configuration must not end the others' work."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    assert groups.join("b", **asked).error_code is ErrorCode.inconsistent_group_protocol
    assert groups.heartbeat("h", a, 1) is ErrorCode.none


def test_protocol_of_a_generation_is_the_one_most_members_prefer_of_those_all_speak() -> None:
    """Upgrading assignors by a rolling bounce rests on it (KIP-429)."""
    groups = GroupConversation()
    for token, protocols in {"a": (STICKY, RANGE), "b": (RANGE,), "c": (STICKY, RANGE)}.items():
        groups.join(token, groups.join(f"{token}?", protocols=protocols).member_id, protocols=protocols)
    groups.pass_time(6_000)
    assert {groups.answers[token].protocol_name for token in "abc"} == {"range"}


def test_group_takes_no_more_members_than_group_max_size() -> None:
    """Who comes too late is told so, and can go elsewhere."""
    groups = GroupConversation(group_max_size="2")
    groups.settle("a", "b")
    assert groups.join("c").error_code is ErrorCode.group_max_size_reached


def test_pending_member_that_does_not_join_is_forgotten_after_its_session_timeout() -> None:
    """Otherwise the next rebalance waits for it."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    b = groups.join("b?").member_id
    groups.join("again", a, protocols=(STICKY, RANGE))
    assert "again" not in groups.answers
    groups.pass_time(10_000)
    assert groups.answers["again"].generation_id == 2
    assert groups.join("late", b).error_code is ErrorCode.unknown_member_id


# ---- rebalances --------------------------------------------------------------------------------------


def test_pending_member_that_does_not_join_does_not_end_a_first_rebalance_before_its_delay_is_over() -> None:
    """A deployment starts with one rebalance, also where one of its clients has died meanwhile."""
    groups = GroupConversation(group_initial_rebalance_delay_ms="30000")
    groups.join("pending?")
    groups.join("a", groups.join("a?").member_id, rebalance_timeout_ms=60_000)
    groups.pass_time(10_000)
    assert state(groups) == "PreparingRebalance" and "a" not in groups.answers
    groups.pass_time(50_000)
    assert groups.answers["a"].generation_id == 1


def test_sessions_that_run_out_together_are_ended_some_at_a_time() -> None:
    """Clients and their broker may fail together: thousands of sessions begin anew with one load."""
    groups = GroupConversation()
    ids = [f"group-{number}" for number in range(3 * ACTIONS_AT_ONCE)]
    for group_id in ids:
        groups.join(group_id, needs_known_member_id=False, group_id=group_id)
    groups.pass_time(3_010)
    assert all(groups.answers[group_id].generation_id == 1 for group_id in ids)
    sessions_over = Now(groups.now.monotonic_ms + 300_000, groups.now.wall_ms + 300_000)
    for _ in range(3):
        assert len(list(groups.machine.tick(sessions_over))) <= ACTIONS_AT_ONCE
        due_ms = groups.machine.next_due_ms
        assert due_ms == sessions_over.monotonic_ms + 1
        sessions_over = sessions_over._replace(monotonic_ms=due_ms)


def test_leaders_assignment_is_told_to_all_and_found_by_the_next_coordinator() -> None:
    """What was acknowledged must be what the successor knows; nobody rebalances for it."""
    groups = GroupConversation()
    generation, (a, b) = groups.settle("a", "b")
    assert generation == 1
    assert [groups.answers[token, "sync"].assignment for token in "ab"] == [
        f"for {a}".encode(),
        f"for {b}".encode(),
    ]
    groups.restart()
    assert groups.heartbeat("h", a, 1) is ErrorCode.none
    assert groups.sync("again", b, 1).assignment == f"for {b}".encode()
    assert state(groups) == "Stable"


def test_member_that_joins_a_stable_group_has_all_join_again() -> None:
    """They hear of it by their heartbeats."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    b = groups.join("b?").member_id
    assert groups.heartbeat("calm", a, 1) is ErrorCode.none
    groups.join("b", b)
    assert groups.heartbeat("h", a, 1) is ErrorCode.rebalance_in_progress
    groups.join("a2", a)
    assert groups.answers["b"].generation_id == groups.answers["a2"].generation_id == 2
    assert groups.heartbeat("stale", a, 1) is ErrorCode.illegal_generation


def test_member_that_does_not_join_again_in_time_is_left_behind() -> None:
    """A hanging member may hold the others up for its rebalance time-out, and no longer."""
    groups = GroupConversation()
    _, (a, _) = groups.settle("a", "b", session_timeout_ms=1_800_000)
    groups.join("again", a, protocols=(STICKY, RANGE), session_timeout_ms=1_800_000)
    groups.pass_time(59_999)
    assert "again" not in groups.answers
    groups.pass_time(1)
    assert [member.member_id for member in groups.answers["again"].members] == [a]


def test_member_beyond_its_session_timeout_is_removed_and_its_late_commit_and_heartbeat_are_refused() -> None:
    """What it reads belongs to others now: whatever it says must change nothing."""
    groups = GroupConversation()
    _, (a, b) = groups.settle("a", "b")
    groups.pass_time(9_999)
    assert groups.heartbeat("in time", a, 1) is ErrorCode.none
    groups.pass_time(1)
    assert groups.heartbeat("late", b, 1) is ErrorCode.unknown_member_id
    assert groups.commit("late commit", 7, b, 1) is ErrorCode.unknown_member_id
    assert groups.heartbeat("told", a, 1) is ErrorCode.rebalance_in_progress


def test_member_that_asks_for_its_assignment_in_a_stable_group_has_a_whole_session_from_then_on() -> None:
    """The answer waits until the assignment is committed, and who waits for it sends no heartbeats."""
    groups = GroupConversation()
    _, (a, b) = groups.settle("a", "b")
    groups.pass_time(9_000)
    groups.sync("b again", b, 1)
    groups.pass_time(9_999)
    assert groups.heartbeat("a is gone", a, 1) is ErrorCode.unknown_member_id
    assert groups.heartbeat("b lives", b, 1) is ErrorCode.rebalance_in_progress


def test_leader_that_rejoins_a_stable_group_has_it_rebalanced_and_another_does_not() -> None:
    """The leader alone sees that partitions were added; another has only missed an answer."""
    groups = GroupConversation()
    _, (a, b) = groups.settle("a", "b")
    follower = groups.join("follower", b)
    assert (follower.generation_id, follower.members) == (1, ())
    groups.join("leader", a)
    assert state(groups) == "PreparingRebalance"


def test_member_that_never_asks_for_its_assignment_is_removed() -> None:
    """Else its partitions are read by nobody."""
    groups = GroupConversation()
    ids = [groups.join(f"{token}?").member_id for token in "ab"]
    for token, member_id in zip("ab", ids, strict=True):
        groups.join(token, member_id, session_timeout_ms=1_800_000)
    groups.pass_time(6_000)
    assert groups.sync("sync", ids[0], 1, {ids[0]: b"all"}).assignment == b"all"
    groups.pass_time(60_000)
    assert groups.heartbeat("h", ids[1], 1) is ErrorCode.unknown_member_id
    assert groups.heartbeat("told", ids[0], 1) is ErrorCode.rebalance_in_progress


def test_member_that_joins_while_the_assignment_is_awaited_ends_that_generation() -> None:
    """Those who wait for it are told to join again at once."""
    groups = GroupConversation()
    ids = [groups.join(f"{token}?").member_id for token in "ab"]
    for token, member_id in zip("ab", ids, strict=True):
        groups.join(token, member_id)
    groups.pass_time(6_000)
    assert groups.sync("waits", ids[1], 1) is None
    groups.join("c", groups.join("c?").member_id)
    assert groups.answers["waits"].error_code is ErrorCode.rebalance_in_progress
    assert groups.sync("late leader", ids[0], 1, {}).error_code is ErrorCode.rebalance_in_progress


def test_assignment_that_cannot_be_written_is_given_to_nobody() -> None:
    """A successor would know nothing of it: two members might read the same partition."""
    groups = GroupConversation()
    ids = [groups.join(f"{token}?").member_id for token in "ab"]
    for token, member_id in zip("ab", ids, strict=True):
        groups.join(token, member_id)
    groups.pass_time(6_000)
    groups.sync("follower", ids[1], 1)
    groups.append_error = ErrorCode.coordinator_not_available
    groups.sync("leader", ids[0], 1, {ids[0]: b"x", ids[1]: b"y"})
    assert {groups.answers[token][0] for token in ("leader", "follower")} == {
        ErrorCode.coordinator_not_available
    }
    assert groups.heartbeat("h", ids[1], 1) is ErrorCode.rebalance_in_progress
    for token, member_id in zip(("a2", "b2"), ids, strict=True):
        groups.join(token, member_id)
    assert groups.answers["a2"].generation_id == 2


def test_group_that_cannot_be_written_is_not_there() -> None:
    """And who wanted to join it may try again."""
    groups = GroupConversation()
    groups.append_error = ErrorCode.coordinator_not_available
    assert groups.join("first").error_code is ErrorCode.coordinator_not_available
    assert GROUP not in groups.machine.groups
    assert groups.join("second").error_code is ErrorCode.member_id_required


@pytest.mark.parametrize(
    ("asked", "error_code"),
    [
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"protocol_name": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"group_id": "none"}, ErrorCode.unknown_member_id),
        ({"instance": "none"}, ErrorCode.unknown_member_id),
    ],
)
def test_sync_with_what_is_not_the_groups_is_refused(asked: dict, error_code: ErrorCode) -> None:  # type: ignore[type-arg]
    """Each with the error that Kafka gives."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    assert groups.sync("bad", **{"member_id": a, "generation": 1, **asked}).error_code is error_code


def test_join_that_is_repeated_answers_the_older_one() -> None:
    """What nobody waits for any more must not be held."""
    groups = GroupConversation()
    a = groups.join("a?").member_id
    groups.join("first", a)
    groups.join("second", a)
    assert groups.answers["first"].error_code is ErrorCode.rebalance_in_progress


# ---- leaving -----------------------------------------------------------------------------------------


def test_last_member_that_leaves_makes_the_group_empty_for_the_next_coordinator_too() -> None:
    """Its offsets expire from now on, not from the last commit (KIP-211)."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    groups.leave("bye", (a, None))
    assert [member.error_code for member in groups.answers["bye"].members] == [ErrorCode.none]
    assert state(groups) == "Empty"
    last = groups.records[-1].value
    assert isinstance(last, GroupMetadataValue)
    assert (last.generation, last.members) == (2, ())
    groups.restart()
    assert state(groups) == "Empty"
    assert groups.machine.offsets.store.topics(GROUP) == {}


def test_leave_of_several_answers_for_each() -> None:
    """Administrators remove static members by instance id alone (KIP-345)."""
    groups = GroupConversation()
    groups.join("s", instance="one")
    groups.pass_time(3_000)
    answer = groups.leave("bye", ("", "one"), ("", "two"), ("stranger", None))
    assert [member.error_code for member in answer.members] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]


def test_leave_of_a_group_that_is_not_there_says_so_of_each_member() -> None:
    """As Kafka does."""
    groups = GroupConversation()
    answer = groups.leave("bye", ("a", None))
    assert (answer.error_code, answer.members[0].error_code) == (
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    )


# ---- static members ----------------------------------------------------------------------------------


def settled_static(groups: GroupConversation) -> tuple[str, str]:
    """Return the member ids of two static members of a stable group; the first leads."""
    for token in ("one", "two"):
        groups.join(token, instance=token)
    groups.pass_time(6_000)
    groups.assign("one", "two")
    return groups.answers["one"].member_id, groups.answers["two"].member_id


def test_static_member_that_restarts_in_time_gets_its_assignment_and_nobody_notices() -> None:
    """A rolling restart of an application must not rebalance it (KIP-345)."""
    groups = GroupConversation()
    one, two = settled_static(groups)
    back = groups.join("back", instance="two", new_member_id="two-again")
    assert (back.error_code, back.generation_id, back.skip_assignment) == (ErrorCode.none, 1, False)
    assert groups.sync("sync", "two-again", 1, instance="two").assignment == f"for {two}".encode()
    assert groups.heartbeat("unmoved", one, 1, instance="one") is ErrorCode.none
    groups.restart()
    assert groups.heartbeat("known", "two-again", 1, instance="two") is ErrorCode.none


def test_static_leader_that_restarts_is_told_to_leave_the_assignment_as_it_is() -> None:
    """It would compute another one that nobody hears of (KIP-814)."""
    groups = GroupConversation()
    _, two = settled_static(groups)
    back = groups.join("back", instance="one", new_member_id="one-again")
    assert (back.leader, back.skip_assignment, back.generation_id) == ("one-again", True, 1)
    assert {member.member_id for member in back.members} == {"one-again", two}
    old = groups.join("old", instance="one", new_member_id="old-client", can_skip_assignment=False)
    assert (old.leader, old.skip_assignment, old.members) == ("one-again", False, ())


def test_second_member_with_an_instance_id_fences_the_first() -> None:
    """Two processes with one identity: the older one must write nothing more."""
    groups = GroupConversation()
    _, two = settled_static(groups)
    groups.join("back", instance="two", new_member_id="two-again")
    assert groups.heartbeat("h", two, 1, instance="two") is ErrorCode.fenced_instance_id
    assert groups.sync("s", two, 1, instance="two").error_code is ErrorCode.fenced_instance_id
    assert groups.join("j", two, instance="two").error_code is ErrorCode.fenced_instance_id
    assert groups.commit("c", 1, two, 1, instance="two") is ErrorCode.fenced_instance_id


def test_static_member_whose_new_id_cannot_be_written_is_still_the_old_one() -> None:
    """What is in the log counts."""
    groups = GroupConversation()
    _, two = settled_static(groups)
    groups.append_error = ErrorCode.coordinator_not_available
    back = groups.join("back", instance="two", new_member_id="two-again")
    assert back.error_code is ErrorCode.coordinator_not_available
    assert groups.heartbeat("h", two, 1, instance="two") is ErrorCode.none


def test_static_member_that_comes_back_while_all_join_again_fences_the_one_that_waits() -> None:
    """And takes its place in the next generation."""
    groups = GroupConversation()
    one, two = settled_static(groups)
    groups.join("two joins", two, instance="two", protocols=(STICKY, RANGE))
    groups.join("back", instance="two", new_member_id="two-again")
    assert groups.answers["two joins"].error_code is ErrorCode.fenced_instance_id
    groups.join("one joins", one, instance="one")
    assert groups.answers["back"].generation_id == 2


def test_static_member_that_comes_back_before_its_first_generation_waits_beyond_its_session_timeout() -> None:
    """Who waits for slow others cannot send heartbeats; after a restart no more than before."""
    groups = GroupConversation()
    generation, (slow,) = groups.settle("slow")
    groups.join("first", instance="i", new_member_id="i-1")
    groups.join("again", instance="i", new_member_id="i-2")
    assert groups.answers["first"].error_code is ErrorCode.fenced_instance_id
    for beat in range(4):
        groups.pass_time(5_000)
        assert groups.heartbeat(f"beat {beat}", slow, generation) is ErrorCode.rebalance_in_progress
    assert "again" not in groups.answers
    groups.join("slow again", slow)
    assert groups.answers["again"].error_code is ErrorCode.none


def test_static_member_that_does_not_join_again_stays_until_its_session_is_over() -> None:
    """It is thought to be restarting."""
    groups = GroupConversation()
    one, two = settled_static(groups)
    groups.join("one joins", one, instance="one", protocols=(STICKY, RANGE))
    groups.pass_time(9_999)
    assert "one joins" not in groups.answers
    groups.pass_time(1)
    assert [member.member_id for member in groups.answers["one joins"].members] == [one]
    assert groups.heartbeat("gone", two, 2, instance="two") is ErrorCode.unknown_member_id


# ---- loading -----------------------------------------------------------------------------------------


def test_members_have_a_whole_session_after_a_load() -> None:
    """A rolling restart of all brokers must not rebalance a healthy group."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    groups.pass_time(9_000)
    groups.restart()
    groups.pass_time(9_999)
    assert groups.heartbeat("h", a, 1) is ErrorCode.none
    groups.pass_time(10_000)
    assert state(groups) == "Empty"


def test_group_above_the_limit_of_its_next_coordinator_is_rebalanced() -> None:
    """The limit was lowered: some have to go, after they could commit."""
    groups = GroupConversation()
    groups.settle("a", "b")
    groups.config = GroupConversation(group_max_size="1").config
    groups.restart()
    assert state(groups) == "PreparingRebalance"


def test_deleted_group_is_not_loaded() -> None:
    """A tombstone that were skipped would bring it back."""
    groups = GroupConversation()
    _, (a,) = groups.settle("a")
    groups.leave("bye", (a, None))
    error_code, records, _ = groups.machine.delete_group(GROUP)
    assert error_code is ErrorCode.none
    groups.carry_out([NOTHING._replace(records=records)])
    groups.restart()
    assert groups.machine.groups == {}
