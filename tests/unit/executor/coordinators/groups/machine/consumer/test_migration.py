"""Groups whose members change from one protocol to the other, one after the other, and go on reading."""

import struct

import pytest

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup
from sparklog.executor.coordinators.groups.machine.consumer.consumer_protocol import read_assignment
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.coordinators.groups.consumer_conversation import ConsumerConversation, Partitions
from tests.unit.executor.coordinators.groups.group_conversation import GROUP, consumer_metadata


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def partitions(owned: Partitions) -> bytes:
    return struct.pack(">i", len(owned)) + b"".join(
        string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *sorted(numbers))
        for topic, numbers in sorted(owned.items())
    )


def subscription(owned: Partitions | None = None, topic: str = "t") -> bytes:
    """Return the metadata of a consumer, version 1: topics, no user data, what it owns."""
    return struct.pack(">hi", 1, 1) + string(topic) + struct.pack(">i", -1) + partitions(owned or {})


def assignment(assigned: Partitions, user_data: bytes | None = None) -> bytes:
    data = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">h", 1) + partitions(assigned) + data


class MigratingConversation(ConsumerConversation):
    """Members of the classic protocol that report, cooperatively, what they own."""

    def __init__(self, **keys: str) -> None:
        self._steps = 0
        self.leaves_turns_to_others = False
        """Whether timers that are due run after further requests."""
        self.classic_owned: dict[str, Partitions] = {}
        self.generations: dict[str, int] = {}
        super().__init__({"t": 4}, **keys)

    def classic_group(self, shares: dict[str, Partitions], **fields: str) -> list[str]:
        """Have a classic group with these members, who are called what their tokens are with `-id`."""
        for name in shares:
            self.join(name, protocols=(("range", subscription()),), needs_known_member_id=False, **fields)  # type: ignore[arg-type]
        self.pass_time(10_000)
        generation = self.answers[next(iter(shares))].generation_id
        leader = next(name for name in shares if self.answers[name].members)
        for name in sorted(shares, key=lambda name: name == leader):
            said = {f"{one}-id": assignment(share) for one, share in shares.items()}
            self.sync(f"{name} sync", f"{name}-id", generation, said)
        for name, share in shares.items():
            self.classic_owned[f"{name}-id"] = share
            self.generations[f"{name}-id"] = generation
        return [f"{name}-id" for name in shares]

    def _tick(self) -> None:
        if not self.leaves_turns_to_others:
            super()._tick()

    def _token(self) -> str:
        self._steps += 1
        return f"step {self._steps}"

    def classic_beat(self, member_id: str) -> ErrorCode:
        """Have a classic member do what its client does: heartbeat, and join and sync if it is told to."""
        error = self.heartbeat(self._token(), member_id, self.generations[member_id])
        if error is ErrorCode.rebalance_in_progress:
            self.classic_join(member_id)
        return error

    def classic_join(self, member_id: str, **fields: str) -> ErrorCode:
        owned = self.classic_owned.get(member_id, {})
        joined = self.join(
            self._token(),
            member_id,
            protocols=(("range", subscription(owned)),),
            needs_known_member_id=False,
            **fields,  # type: ignore[arg-type]
        )
        if joined is None or joined.error_code is not ErrorCode.none:
            return ErrorCode.none if joined is None else joined.error_code
        self.generations[joined.member_id] = joined.generation_id
        synced = self.sync(self._token(), joined.member_id, joined.generation_id, **fields)  # type: ignore[arg-type]
        if synced.error_code is ErrorCode.none:
            assigned, _ = read_assignment(synced.assignment)
            self.classic_owned[joined.member_id] = {
                topic: set(numbers) for topic, numbers in assigned.items()
            }
        return synced.error_code

    def settle_both(self, classic: list[str], modern: list[str]) -> dict[str, Partitions]:
        for _ in range(8):
            self.pass_time(1_100)
            for member_id in classic:
                self.classic_beat(member_id)
            for member_id in modern:
                self.beat(member_id)
        return {
            **{member_id: self.classic_owned[member_id] for member_id in classic},
            **{member_id: self.owned[member_id] for member_id in modern},
        }


def shared(shares: dict[str, Partitions]) -> bool:
    """Whether the members share all of topic `t`, nobody with another."""
    owned = [number for share in shares.values() for number in share.get("t", ())]
    return sorted(owned) == [0, 1, 2, 3]


def test_classic_group_new_protocol_member_joins_becomes_a_consumer_group_in_which_all_go_on() -> None:
    talk = MigratingConversation()
    members = talk.classic_group({"a": {"t": {0, 1}}, "b": {"t": {2, 3}}})
    generation = talk.generations["a-id"]

    answer = talk.enter("c")

    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, generation + 1)
    assert isinstance(talk.machine.groups[GROUP], ConsumerGroup)
    assert {name: set(one.assigned_partitions) != set() for name, one in talk.group.members.items()} == {
        "a-id": True,
        "b-id": True,
        "c": False,
    }
    shares = talk.settle_both(members, ["c"])
    assert shared(shares)
    assert sorted(len(share.get("t", ())) for share in shares.values()) == [1, 1, 2]
    assert talk.group.state_name == "Stable"


def test_group_all_of_whose_members_changed_over_is_an_ordinary_consumer_group() -> None:
    talk = MigratingConversation()
    a, b = talk.classic_group({"a": {"t": {0, 1}}, "b": {"t": {2, 3}}})
    talk.enter("c")
    talk.settle_both([a, b], ["c"])

    talk.leave("a goes", (a, None))
    talk.enter("d")
    talk.settle_both([b], ["c", "d"])
    talk.leave("b goes", (b, None))

    assert shared(talk.settle_both([], ["c", "d"]))
    assert talk.group.classic_member_count == 0


def test_last_member_of_the_new_protocol_leaves_gives_the_classic_group_back() -> None:
    talk = MigratingConversation()
    members = talk.classic_group({"a": {"t": {0, 1}}, "b": {"t": {2, 3}}})
    talk.enter("c")
    talk.settle_both(members, ["c"])

    talk.send("c", -1)

    group = talk.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, set(group.members)) == ("PreparingRebalance", set(members))
    assert talk.heartbeat("told", members[0], group.generation) is ErrorCode.rebalance_in_progress
    for name, member_id in zip(("a again", "b again"), members, strict=True):
        talk.join(name, member_id, protocols=(("range", subscription()),))
    assert {talk.answers[name].error_code for name in ("a again", "b again")} == {ErrorCode.none}


def test_group_with_committed_offsets_goes_back_to_the_classic_protocol_with_all_its_members() -> None:
    """Between its tombstones and its new record it is nothing but its offsets; members were lost there."""
    talk = MigratingConversation()
    (a,) = talk.classic_group({"a": {"t": {0, 1, 2, 3}}})
    assert talk.commit("commit", 7, a, 1, topic="t") is ErrorCode.none
    talk.enter("c")
    talk.settle_both([a], ["c"])

    talk.send("c", -1)

    group = talk.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, set(group.members)) == ("PreparingRebalance", {a})
    assert talk.heartbeat("told", a, group.generation) is ErrorCode.rebalance_in_progress


def test_downgrade_with_a_rebalance_survives_its_coordinators() -> None:
    """A group loaded as a stable one left the partitions of its last modern member out, for ever."""
    talk = MigratingConversation()
    members = talk.classic_group({"a": {"t": {0, 1}}, "b": {"t": {2, 3}}})
    talk.enter("c")
    talk.settle_both(members, ["c"])
    talk.send("c", -1)

    for _ in range(2):
        talk.restart()

        group = talk.machine.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        assert (group.state_name, set(group.members)) == ("PreparingRebalance", set(members))

    for member_id in members:
        talk.join(f"{member_id} again", member_id, protocols=(("range", subscription()),))
    joined = [talk.answers[f"{member_id} again"] for member_id in members]
    leader, generation = joined[0].leader, joined[0].generation_id
    assert leader in members
    talk.sync("led", leader, generation, {member_id: assignment({"t": {0}}) for member_id in members})
    talk.restart()
    assert talk.machine.groups[GROUP].state_name == "Stable"


def test_downgrade_that_a_static_member_returns_to_before_its_rebalance_began_is_rebalanced() -> None:
    """The record of its new id would be that of a stable group, without the rebalance that is due."""
    talk = MigratingConversation()
    (member_id,) = talk.classic_group({"a": {"t": {0, 1, 2, 3}}}, instance="i")
    talk.enter("c")
    for _ in range(8):
        talk.pass_time(1_100)
        talk.beat("c")
        error = talk.heartbeat(talk._token(), member_id, talk.generations[member_id], instance="i")
        if error is ErrorCode.rebalance_in_progress:
            talk.classic_join(member_id, instance="i")
    assert talk.owned["c"] != {}

    talk.leaves_turns_to_others = True
    talk.send("c", -1)
    talk.join("back", instance="i", protocols=(("range", subscription()),), new_member_id="back-id")
    talk.leaves_turns_to_others = False
    talk.pass_time(0)

    group = talk.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, set(group.members)) == ("CompletingRebalance", {"back-id"})
    talk.restart()
    assert talk.machine.groups[GROUP].state_name == "PreparingRebalance"


def test_downgrade_without_a_rebalance_is_stable_to_the_next_coordinator() -> None:
    talk = MigratingConversation()
    talk.enter("c", instance_id="i")
    talk.send("c", -2, instance_id="i")
    talk.join("back", instance="i", protocols=(("range", subscription()),), new_member_id="a-id")

    talk.restart()

    group = talk.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, set(group.members)) == ("Stable", {"a-id"})


def test_upgrade_survives_its_coordinator() -> None:
    talk = MigratingConversation()
    members = talk.classic_group({"a": {"t": {0, 1}}, "b": {"t": {2, 3}}})
    talk.enter("c")

    talk.restart()

    assert shared(talk.settle_both(members, ["c"]))


def test_classic_member_joins_a_consumer_group_and_gets_its_share() -> None:
    talk = MigratingConversation()
    talk.enter("c")

    first = talk.join("first", protocols=(("range", subscription()),), new_member_id="a-id")
    assert (first.error_code, first.member_id) == (ErrorCode.member_id_required, "a-id")
    assert talk.classic_join("a-id") is ErrorCode.none

    assert talk.generations["a-id"] == talk.group.members["a-id"].member_epoch
    shares = talk.settle_both(["a-id"], ["c"])
    assert shared(shares)
    assert talk.machine.consumer.describe(GROUP).members[1].member_type == 0


def test_classic_member_silent_for_its_own_session_is_removed() -> None:
    talk = MigratingConversation()
    talk.enter("c")
    talk.classic_join("a-id")
    talk.settle_both(["a-id"], ["c"])

    talk.pass_time(10_000)

    assert set(talk.group.members) == {"c"}


def test_classic_member_that_is_told_to_join_and_does_not_is_removed() -> None:
    """It sends heartbeats, and would keep others from its partitions for ever."""
    talk = MigratingConversation()
    talk.enter("c")
    talk.join("a", "a-id", protocols=(("range", subscription()),), rebalance_timeout_ms=20_000)
    talk.sync("a sync", "a-id", talk.answers["a"].generation_id)
    talk.pass_time(1_000)
    talk.enter("d")

    for step in range(6):
        talk.pass_time(5_000)
        talk.heartbeat(f"beat {step}", "a-id", talk.answers["a"].generation_id)
        talk.beat("c")
        talk.beat("d")

    assert set(talk.group.members) == {"c", "d"}


def test_classic_member_that_joins_and_does_not_ask_for_its_assignment_is_removed() -> None:
    talk = MigratingConversation()
    talk.enter("c")
    talk.join(
        "a",
        "a-id",
        protocols=(("range", subscription()),),
        rebalance_timeout_ms=8_000,
        session_timeout_ms=30_000,
    )

    talk.pass_time(8_000)

    assert set(talk.group.members) == {"c"}


@pytest.mark.parametrize(
    ("generation", "protocol_name", "member_id", "error"),
    [
        (99, "range", "a-id", ErrorCode.illegal_generation),
        (None, "other", "a-id", ErrorCode.inconsistent_group_protocol),
        (None, "range", "b-id", ErrorCode.unknown_member_id),
        (None, "range", "c", ErrorCode.unknown_member_id),
    ],
)
def test_sync_of_a_classic_member_is_refused_as_kafka_does(
    generation: int | None, protocol_name: str, member_id: str, error: ErrorCode
) -> None:
    talk = MigratingConversation()
    talk.enter("c")
    talk.classic_join("a-id")
    current = talk.generations["a-id"]

    answer = talk.sync(
        "bad", member_id, current if generation is None else generation, protocol_name=protocol_name
    )

    assert answer.error_code is error


def test_classic_member_without_a_common_assignor_is_refused() -> None:
    talk = MigratingConversation()
    talk.enter("c")
    talk.classic_join("a-id")

    answer = talk.join("b", "b-id", protocols=(("sticky", subscription()),))

    assert answer.error_code is ErrorCode.inconsistent_group_protocol


def test_waiting_classic_members_are_told_to_join_again_when_their_group_changes_over() -> None:
    """They wait for a generation of a group that there is no more."""
    talk = MigratingConversation()
    talk.join("a", protocols=(("range", subscription()),), needs_known_member_id=False)
    assert "a" not in talk.answers

    talk.enter("c")

    assert talk.answers["a"].error_code is ErrorCode.rebalance_in_progress
    assert shared(talk.settle_both([], ["c"])) is False, (
        "the classic member has its share, and has not come yet"
    )


def test_cooperative_member_keeps_what_it_has_to_give_up_until_it_has_joined_again_without_it() -> None:
    """It was assigned half of what it had, and reads the rest until it joins without it (KIP-429)."""
    talk = MigratingConversation()
    all_of_t = subscription({"t": {0, 1, 2, 3}})
    talk.join("a", protocols=(("range", all_of_t),), needs_known_member_id=False)
    talk.pass_time(10_000)
    talk.sync("a sync", "a-id", 1, {"a-id": assignment({"t": {0, 1}})})
    talk.generations["a-id"] = 1

    talk.enter("c")
    assert talk.owned["c"] == {}
    talk.classic_owned["a-id"] = {"t": {0, 1}}  # it has given the others up by now, and says so

    assert talk.classic_beat("a-id") is ErrorCode.rebalance_in_progress
    assert shared(talk.settle_both(["a-id"], ["c"]))
    assert talk.owned["c"] == {"t": {2, 3}}


def test_member_that_has_not_heard_what_to_give_up_keeps_it_while_its_group_changes_back_and_over() -> None:
    """What it shall have is not what it has: until it joins again it reads all that it read before."""
    talk = MigratingConversation()
    (a,) = talk.classic_group({"a": {"t": {0, 1, 2, 3}}})
    talk.enter("c")
    talk.send("c", -1)
    assert isinstance(talk.machine.groups[GROUP], ClassicGroup)

    talk.enter("d")

    assert talk.owned["d"] == {}
    assert talk.classic_beat(a) is ErrorCode.illegal_generation
    talk.classic_owned[a] = {}  # so it has given everything up
    assert talk.classic_join(a) is ErrorCode.none
    shares = talk.settle_both([a], ["d"])
    assert shared(shares)
    assert len(shares["d"]["t"]) == 2


def test_group_that_changes_over_before_its_first_generation_tells_no_member_epoch_0() -> None:
    """With epoch 0 a member joins: one that is told it, and goes on with it, is refused for ever."""
    talk = MigratingConversation()
    talk.join("a", protocols=(("range", subscription(topic="missing")),), needs_known_member_id=False)
    assert "a" not in talk.answers
    talk.runs_at_once = False

    # There is nothing to assign, and what its expression means is found out later: its epoch need not rise.
    answer = talk.enter("c", subscribed_topic_regex="t.*")

    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, 1)


def test_waiting_classic_members_still_wait_when_who_would_change_their_group_over_is_refused() -> None:
    """A stranger with a regular expression that is none must not leave a whole group without an answer."""
    talk = MigratingConversation()
    talk.join("a", protocols=(("range", subscription()),), needs_known_member_id=False)

    refused = talk.enter("c", subscribed_topic_regex="(")

    assert refused.error_code is ErrorCode.invalid_regular_expression
    assert "a" not in talk.answers
    talk.pass_time(10_000)
    assert talk.answers["a"].error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("policy", "upgrades"), [("disabled", False), ("downgrade", False), ("upgrade", True)]
)
def test_policy_decides_whether_a_classic_group_changes_over(policy: str, upgrades: bool) -> None:
    talk = MigratingConversation(group_consumer_migration_policy=policy)
    talk.classic_group({"a": {"t": {0, 1, 2, 3}}})

    answer = talk.enter("c")

    assert (answer.error_code is ErrorCode.none) is upgrades
    if not upgrades:
        assert answer.error_code is ErrorCode.group_id_not_found
        assert answer.error_message == (
            "Cannot upgrade classic group group to consumer group because online upgrade is disabled."
        )


@pytest.mark.parametrize(
    ("policy", "downgrades"), [("upgrade", False), ("downgrade", True), ("bidirectional", True)]
)
def test_policy_decides_whether_a_consumer_group_changes_back(policy: str, downgrades: bool) -> None:
    talk = MigratingConversation(group_consumer_migration_policy=policy)
    talk.enter("c")
    talk.classic_join("a-id")
    talk.settle_both(["a-id"], ["c"])

    talk.send("c", -1)

    assert isinstance(talk.machine.groups[GROUP], ClassicGroup) is downgrades
    if not downgrades:
        assert shared(talk.settle_both(["a-id"], []))


def test_policy_disabled_takes_no_classic_members_into_consumer_groups() -> None:
    talk = MigratingConversation(group_consumer_migration_policy="Disabled")
    talk.enter("c")

    assert talk.classic_join("a-id") is ErrorCode.inconsistent_group_protocol


def test_classic_group_of_a_custom_assignor_does_not_change_over() -> None:
    """What its assignor told its members besides would be lost."""
    talk = MigratingConversation()
    talk.join("a", protocols=(("range", subscription()),), needs_known_member_id=False)
    talk.pass_time(10_000)
    talk.sync("a sync", "a-id", 1, {"a-id": assignment({"t": {0}}, user_data=b"more")})

    answer = talk.enter("c")

    assert answer.error_code is ErrorCode.group_id_not_found
    assert "an unsupported custom assignor is in use" in answer.error_message
    assert isinstance(talk.machine.groups[GROUP], ClassicGroup)


def test_classic_group_that_is_none_of_consumers_does_not_change_over() -> None:
    talk = MigratingConversation()
    talk.join("a", protocols=(("range", b"anything"),), protocol_type="connect", needs_known_member_id=False)
    talk.pass_time(10_000)

    assert talk.enter("c").error_code is ErrorCode.group_id_not_found


def test_classic_group_with_metadata_that_cannot_be_read_does_not_change_over() -> None:
    talk = MigratingConversation()
    talk.join("a", protocols=(("range", b"\0"),), needs_known_member_id=False)
    talk.pass_time(10_000)

    answer = talk.enter("c")

    assert (answer.error_code, isinstance(talk.machine.groups[GROUP], ClassicGroup)) == (
        ErrorCode.group_id_not_found,
        True,
    )


def test_classic_member_that_says_more_than_is_read_is_refused_by_a_consumer_group() -> None:
    """Everybody else waits while it is read; 31,000 names are more than anybody means."""
    talk = MigratingConversation()
    talk.enter("c")
    metadata = consumer_metadata(*(f"topic-{number}" for number in range(31_000)))

    answer = talk.join("a", protocols=(("range", metadata),), needs_known_member_id=False)

    assert answer.error_code is ErrorCode.inconsistent_group_protocol
    assert talk.classic_join("a-id") is ErrorCode.none


def test_static_member_that_comes_back_with_the_other_protocol_keeps_its_partitions() -> None:
    """An application that is upgraded in place, instance by instance."""
    talk = MigratingConversation()
    talk.classic_group({"a": {"t": {0, 1, 2, 3}}}, instance="i")

    answer = talk.enter("c", instance_id="i")

    assert (answer.error_code, talk.owned["c"]) == (ErrorCode.none, {"t": {0, 1, 2, 3}})
    assert set(talk.group.members) == {"c"}


def test_static_member_that_changes_a_group_over_between_its_rebalances_has_the_rest_dealt_out() -> None:
    """What a cooperative leader had left out for the next rebalance was nobody's, for ever."""
    talk = MigratingConversation()
    talk.classic_group({"a": {"t": {0, 1}}}, instance="i")

    answer = talk.enter("c", instance_id="i")

    assert answer.error_code is ErrorCode.none
    assert talk.settle_both([], ["c"]) == {"c": {"t": {0, 1, 2, 3}}}


def test_static_member_that_comes_back_with_the_classic_protocol_is_the_last_to_go_back() -> None:
    talk = MigratingConversation()
    talk.enter("c", instance_id="i")
    talk.send("c", -2, instance_id="i")

    joined = talk.join("back", instance="i", protocols=(("range", subscription()),), new_member_id="a-id")

    assert (joined.error_code, joined.member_id) == (ErrorCode.none, "a-id")
    group = talk.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (set(group.members), group.generation) == ({"a-id"}, joined.generation_id)
    synced = talk.sync("synced", "a-id", joined.generation_id, instance="i")
    assert read_assignment(synced.assignment)[0] == {"t": (0, 1, 2, 3)}


def test_group_that_goes_back_before_all_have_what_they_shall_has_them_join_again() -> None:
    """Who waits for partitions of another is told nothing by a heartbeat in a stable group, for ever."""
    talk = MigratingConversation()
    talk.enter("c", instance_id="i")
    talk.classic_join("a-id")
    talk.pass_time(1_100)
    talk.beat("c")
    talk.classic_beat("a-id")
    assert talk.classic_owned["a-id"] == {}
    talk.send("c", -2, instance_id="i")

    talk.join("back", instance="i", protocols=(("range", subscription()),), new_member_id="b-id")

    assert isinstance(talk.machine.groups[GROUP], ClassicGroup)
    generation = talk.machine.groups[GROUP].generation
    assert talk.heartbeat("told", "a-id", generation) is ErrorCode.rebalance_in_progress


def test_upgrade_that_is_not_written_down_leaves_the_classic_group_as_it_was() -> None:
    talk = MigratingConversation()
    (a,) = talk.classic_group({"a": {"t": {0, 1, 2, 3}}})
    talk.append_error = ErrorCode.not_enough_replicas

    talk.enter("c")

    assert isinstance(talk.machine.groups[GROUP], ClassicGroup)
    assert talk.heartbeat("goes on", a, talk.generations[a]) is ErrorCode.none
    talk.pass_time(10_000)
    group = talk.machine.groups[GROUP]
    assert (group.is_empty, group.state_name) == (True, "Empty"), "its session is that of a classic member"


def test_static_member_that_waited_when_an_upgrade_was_not_written_down_and_is_gone_is_removed() -> None:
    """Its session ran out while it waited; without another one nothing would ever remove it."""
    talk = MigratingConversation()
    (slow,) = talk.classic_group({"slow": {"t": {0, 1, 2, 3}}})
    protocols = (("range", subscription()),)
    talk.join("waits", instance="i", new_member_id="i-1", protocols=protocols)
    talk.join("by then", instance="i", new_member_id="i-2", protocols=protocols)
    for beat in range(3):
        talk.pass_time(5_000)
        talk.heartbeat(f"beat {beat}", slow, talk.generations[slow])
    assert "by then" not in talk.answers
    talk.append_error = ErrorCode.not_enough_replicas

    talk.enter("c")

    talk.pass_time(300_000)
    assert talk.machine.groups[GROUP].is_empty


def test_admin_removes_a_member_of_the_new_protocol_by_its_instance() -> None:
    talk = MigratingConversation()
    talk.enter("c", instance_id="i")

    answer = talk.leave("admin", ("", "i"), ("", "other"))

    assert [one.error_code for one in answer.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert talk.group.is_empty


def test_empty_consumer_group_is_a_new_group_to_classic_members() -> None:
    talk = MigratingConversation()
    talk.enter("c")
    talk.send("c", -1)

    talk.classic_group({"a": {"t": {0, 1, 2, 3}}})

    group = talk.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state_name == "Stable"


def test_empty_consumer_group_with_committed_offsets_takes_in_a_classic_member_that_is_then_known() -> None:
    """The group that takes its place is kept, with who was told an id or waits in it."""
    talk = MigratingConversation()
    talk.enter("c")
    assert talk.commit("commit", 7, "c", talk.epochs["c"], topic="t") is ErrorCode.none
    talk.send("c", -1)

    protocols = (("range", subscription()),)
    told = talk.join("asks", protocols=protocols)
    assert told.error_code is ErrorCode.member_id_required
    talk.join("joins", told.member_id, protocols=protocols)
    talk.pass_time(10_000)

    assert talk.answers["joins"].error_code is ErrorCode.none
