"""The classic protocol, decided about by a shard without a log."""

from kio.schema.errors import ErrorCode

from tests.unit.executor.coordinators.groups.group_conversation import GROUP, GroupConversation


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


def test_leaders_assignment_is_told_to_all_and_found_by_the_next_coordinator() -> None:
    """What was acknowledged must be what the successor knows."""
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
    assert groups.shard.groups[GROUP].state_name == "Stable"
