"""How an application takes a prefix, keeps it, and gives way."""

from dataclasses import replace

import pytest

from sparklog.node.remote_log.machine.ownership import (
    LOOK_MS,
    Lost,
    Owner,
    OwnerFormatError,
    Ownership,
    OwnershipEffect,
    ReadOwner,
    Refused,
    Stopped,
    Taken,
    WriteOwner,
    decode_owner,
    encode_owner,
)

SESSION_MS = 30_000
OTHER = Owner(
    application="other",
    epoch=4,
    address="other:9092",
    host="there",
    cluster_id="cluster",
    beat=17,
    session_ms=SESSION_MS,
)


def mine(epoch: int, beat: int, **changes: object) -> Owner:
    owner = Owner(
        application="mine",
        epoch=epoch,
        address="here:9092",
        host="here",
        cluster_id=None,
        beat=beat,
        session_ms=SESSION_MS,
    )
    return replace(owner, **changes)  # type: ignore[arg-type]


def ownership() -> Ownership:
    return Ownership("mine", "here:9092", "here", SESSION_MS)


def owned() -> Ownership:
    machine = ownership()
    machine.tick(0)
    machine.owner_read(None, None, 0)
    machine.owner_written("v1", 0)
    return machine


def test_owner_of_an_empty_prefix_is_created_and_renewed_every_third_of_its_session() -> None:
    """A prefix without an owner is taken at once."""
    machine = ownership()
    assert machine.tick(0) == [ReadOwner()]
    assert machine.tick(1) == []
    assert machine.owner_read(None, None, 1) == [WriteOwner(mine(1, 1), None)]
    assert machine.owner_written("v1", 2) == [Taken(1, None)]
    assert machine.tick(10_001) == []
    assert machine.tick(10_002) == [WriteOwner(mine(1, 2), "v1")]
    machine.cluster_known("cluster")
    assert machine.owner_written("v2", 10_010) == []
    assert machine.tick(20_010) == [WriteOwner(mine(1, 3, cluster_id="cluster"), "v2")]


def test_prefix_of_a_stopped_owner_is_taken_at_once() -> None:
    """An orderly stop must not cost the next start a session."""
    stopped = replace(OTHER, is_stopped=True)
    machine = ownership()
    machine.tick(0)
    assert machine.owner_read(stopped, "v9", 0) == [WriteOwner(mine(5, 1), "v9")]
    assert machine.owner_written("v10", 0) == [Taken(5, stopped)]


def test_prefix_of_a_killed_owner_on_this_host_is_taken_at_once() -> None:
    """Its port refuses connections, so its driver has ended."""
    machine = ownership()
    machine.tick(0)
    assert machine.owner_read(OTHER, "v9", 0, is_gone=True) == [WriteOwner(mine(5, 1), "v9")]


def test_owner_without_a_beat_for_its_session_is_replaced() -> None:
    """The session is counted from the first look at the object, by the own clock only."""
    machine = ownership()
    machine.tick(0)
    assert machine.owner_read(OTHER, "v9", 100) == []
    assert machine.waits_for == OTHER
    for now_ms in range(100 + LOOK_MS, 100 + SESSION_MS, LOOK_MS):
        assert machine.tick(now_ms) == [ReadOwner()]
        assert machine.owner_read(OTHER, "v9", now_ms) == []
    assert machine.tick(100 + SESSION_MS) == [ReadOwner()]
    assert machine.owner_read(OTHER, "v9", 100 + SESSION_MS) == [WriteOwner(mine(5, 1), "v9")]


def test_start_over_a_living_owner_is_refused() -> None:
    """Two applications would write over each other's manifests."""
    machine = ownership()
    machine.tick(0)
    machine.owner_read(OTHER, "v9", 0)
    assert machine.tick(LOOK_MS) == [ReadOwner()]
    alive = replace(OTHER, beat=18)
    assert machine.owner_read(alive, "v10", LOOK_MS) == [Refused(alive)]
    assert machine.tick(SESSION_MS) == []


def test_lost_race_for_a_dead_owners_prefix_is_seen_by_the_next_read() -> None:
    """Of two that take it the compare-and-swap lets one through, which then lives."""
    machine = ownership()
    machine.tick(0)
    machine.owner_read(None, None, 0)
    assert machine.owner_write_refused(0) == [ReadOwner()]
    assert machine.owner_read(OTHER, "v1", 0) == []
    machine.tick(LOOK_MS)
    assert machine.owner_read(replace(OTHER, beat=18), "v2", LOOK_MS) == [Refused(replace(OTHER, beat=18))]


def test_owner_that_was_replaced_has_lost_the_prefix() -> None:
    """It may have been suspended for longer than its session."""
    machine = owned()
    machine.tick(10_000)
    assert machine.owner_write_refused(10_001) == [ReadOwner()]
    assert machine.owner_read(OTHER, "v7", 10_002) == [Lost(OTHER)]
    assert not machine.is_owned
    assert machine.tick(60_000) == []


@pytest.mark.parametrize("was_written", [False, True])
def test_beat_with_an_unknown_outcome_is_read_before_the_next(was_written: bool) -> None:
    """A time-out after a successful write must not be taken for another application's."""
    machine = owned()
    (write,) = machine.tick(10_000)
    assert isinstance(write, WriteOwner)
    assert machine.store_failed(12_000) == []
    assert machine.tick(12_000 + LOOK_MS) == [ReadOwner()]
    found = write.owner if was_written else mine(1, 1)
    assert machine.owner_read(found, "v2", 13_000) == []
    beats = 3 if was_written else 2
    due_ms = 13_000 + (SESSION_MS // 3 if was_written else 0)
    assert machine.tick(due_ms) == [WriteOwner(mine(1, beats), "v2")]


def test_application_takes_its_own_prefix_again_in_the_same_epoch() -> None:
    """Its controller's process may have been restarted; brokers go on under the epoch that they know."""
    machine = ownership()
    machine.tick(0)
    assert machine.owner_read(mine(3, 8), "v4", 0) == [Taken(3, None)]
    assert machine.tick(0) == [WriteOwner(mine(3, 9), "v4")]


def test_stop_marks_the_owner_also_after_an_error_of_the_store() -> None:
    """The mark is what makes the next start immediate."""
    machine = owned()
    assert machine.stop(500) == [WriteOwner(mine(1, 2, is_stopped=True), "v1")]
    assert machine.store_failed(600) == []
    assert machine.tick(600 + LOOK_MS) == [ReadOwner()]
    effects: list[OwnershipEffect] = machine.owner_read(mine(1, 1), "v1", 1_700)
    assert effects == [WriteOwner(mine(1, 2, is_stopped=True), "v1")]
    assert machine.owner_written("v2", 1_800) == [Stopped()]
    assert machine.tick(60_000) == []


def test_owner_is_decoded_as_it_was_encoded() -> None:
    """Two versions of sparklog meet in this object."""
    assert decode_owner(encode_owner(OTHER)) == OTHER


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "who": 3}', b"\xff"], ids=str
)
def test_owner_of_unknown_format_is_refused(data: bytes) -> None:
    """Somebody else's object of that name must not be overwritten."""
    with pytest.raises(OwnerFormatError):
        decode_owner(data)
