"""Committed offsets: who may commit, what is read, what transactions hide, what expires, what is deleted."""

import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from sparklog.executor.coordinators.groups.machine.classic.group import MAX_NAMES
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import (
    NOTHING,
    CoordinatorResult,
    ProducerStamp,
)
from sparklog.executor.coordinators.records.consumer_offsets import (
    OffsetCommitKey,
)
from sparklog.executor.coordinators.records.framing import encode_key, encode_value
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.key_values import KeyRun, read_key_runs
from tests.unit.executor.coordinators.groups.group_conversation import (
    GROUP,
    GroupConversation,
    consumer_metadata,
)

PRODUCER = ProducerStamp(1000, 0)
OTHER = ProducerStamp(2000, 0)
DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS
TOPIC_ID, NEXT_TOPIC_ID = UUID(int=7), UUID(int=8)


def delete(groups: GroupConversation, partition: int = 0, topic: str = "topic") -> ErrorCode:
    """Send OffsetDelete; return what the partition is answered."""
    error_code, records, errors = groups.machine.offsets.delete(GROUP, ((topic, (partition,)),))
    groups.carry_out([NOTHING._replace(records=records)])
    return error_code if error_code is not ErrorCode.none else errors[0][1][0][1]


def delete_group(groups: GroupConversation, group_id: str = GROUP) -> ErrorCode:
    error_code, records, _ = groups.machine.delete_group(group_id)
    groups.carry_out([NOTHING._replace(records=records)])
    return error_code


# ---- committing --------------------------------------------------------------------------------------


def test_offset_that_was_committed_is_read_back_from_the_next_coordinator() -> None:
    """A committed offset survives its coordinator."""
    groups = GroupConversation()
    assert groups.commit("c", 42) is ErrorCode.none
    assert groups.commit("later", 43) is ErrorCode.none
    groups.restart()
    assert groups.fetch() == 43
    assert groups.machine.groups[GROUP].protocol_type is None


def test_offset_that_could_not_be_written_is_not_read() -> None:
    """What is answered with an error has not happened."""
    groups = GroupConversation()
    groups.commit("c", 1)
    groups.append_error = ErrorCode.coordinator_not_available
    groups.commit("lost", 2)
    assert groups.fetch() == 1


@pytest.mark.parametrize("metadata", ["x" * 4096, "\u00e9" * 4096, "\U0001f680" * 2048])
def test_metadata_as_long_as_kafka_allows_is_kept(metadata: str) -> None:
    """It is counted in Java's characters, neither in bytes nor in Python's."""
    groups = GroupConversation()
    assert groups.commit("c", 1, metadata=metadata) is ErrorCode.none


@pytest.mark.parametrize(
    ("commit", "error_code"),
    [
        ({"generation": 1}, ErrorCode.group_id_not_found),
        ({"generation": 1, "api_version": 8}, ErrorCode.illegal_generation),
        ({"metadata": "x" * 4097}, ErrorCode.offset_metadata_too_large),
        ({"metadata": "\U0001f680" * 2049}, ErrorCode.offset_metadata_too_large),  # two of Java's chars each
    ],
)
def test_commit_to_no_group_with_what_cannot_be_is_refused(commit: dict, error_code: ErrorCode) -> None:  # type: ignore[type-arg]
    """Each with the error that Kafka gives, and no group is made of it."""
    groups = GroupConversation()
    assert groups.commit("c", 1, **commit) is error_code
    assert groups.machine.groups == {}


@pytest.mark.parametrize(
    ("commit", "error_code"),
    [
        ({}, ErrorCode.unknown_member_id),
        ({"member_id": "stranger", "generation": 1}, ErrorCode.unknown_member_id),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"instance": "one", "generation": 1}, ErrorCode.unknown_member_id),
    ],
)
def test_commit_to_a_stable_group_is_its_members_alone(commit: dict, error_code: ErrorCode) -> None:  # type: ignore[type-arg]
    """An admin tool that commits under a running group would have its work overwritten, or overwrite it."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a")
    if "generation" in commit and "instance" not in commit:
        commit = {"member_id": member_id, **commit}
    assert groups.commit("c", 1, **commit) is error_code
    assert groups.commit("mine", 1, member_id, 1) is ErrorCode.none


def test_commit_while_the_assignment_is_awaited_is_refused() -> None:
    """The member is to join first, and may read other partitions then."""
    groups = GroupConversation()
    member_id = groups.join("a?").member_id
    groups.join("a", member_id)
    groups.pass_time(3_000)
    assert groups.commit("c", 1, member_id, 1) is ErrorCode.rebalance_in_progress


def test_commit_keeps_its_members_session() -> None:
    """A consumer that commits lives, as in Kafka."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a")
    groups.pass_time(9_000)
    groups.commit("c", 1, member_id, 1)
    groups.pass_time(9_999)
    assert groups.heartbeat("h", member_id, 1) is ErrorCode.none


def test_consumer_that_dies_between_processing_and_commit_leaves_the_earlier_offset() -> None:
    """At least once: its successor reads again what was processed and not committed."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a")
    groups.commit("c", 5, member_id, 1)
    groups.pass_time(10_000)  # it has processed up to 9, and dies
    groups.settle("b")
    assert groups.fetch() == 5


def test_consumer_that_dies_between_commit_and_processing_leaves_the_later_offset() -> None:
    """At most once: what it had committed and not processed is nobody's any more."""
    groups = GroupConversation()
    generation, (member_id,) = groups.settle("a")
    assert groups.commit("c", 10, member_id=member_id, generation=generation) is ErrorCode.none
    groups.restart()  # nor does a change of coordinators give it back
    groups.pass_time(10_000)  # it has processed up to 5, and dies
    groups.settle("b")
    assert groups.fetch() == 10


def test_consumer_that_dies_inside_a_transaction_leaves_what_its_last_one_has_committed() -> None:
    """Exactly once: its successor waits for the abort, and does the whole transaction again."""
    groups = GroupConversation()
    generation, (member_id,) = groups.settle("a")
    asked = {"member_id": member_id, "generation": generation, "producer": PRODUCER}
    groups.commit("first", 5, **asked)
    groups.end_transaction(PRODUCER, committed=True)
    groups.commit("second", 10, **asked)
    groups.restart()
    groups.pass_time(10_000)  # it dies before it ends the transaction
    groups.settle("b")
    assert groups.fetch(require_stable=True) is ErrorCode.unstable_offset_commit
    groups.end_transaction(PRODUCER, committed=False)  # as when its successor asks for a producer id
    assert groups.fetch(require_stable=True) == 5


def test_offset_of_a_topic_that_was_created_anew_is_not_read_by_the_new_id() -> None:
    """It counts records of another log (KIP-516)."""
    groups = GroupConversation()
    groups.commit("c", 42, topic_id=TOPIC_ID)
    assert groups.fetch(topic_id=TOPIC_ID) == 42
    assert groups.fetch() == 42
    assert groups.fetch(topic_id=NEXT_TOPIC_ID) is None


def test_load_of_raw_records_leaves_what_a_load_of_entities_does() -> None:
    """It is the same log, read faster: tombstones, later records and transactions among them."""
    groups = GroupConversation()
    groups.commit("kept", 1, topic_id=TOPIC_ID)
    groups.commit("overwritten", 2)
    groups.commit("deleted", 3, topic="deleted")
    delete(groups, topic="deleted")
    groups.commit("deleted last", 3, group_id="gone")
    for partition in range(100):  # of one layout, as those of one request are
        groups.commit(partition, 1, group_id="many", partition=partition)
    groups.commit("again", 2, group_id="many", partition=7)
    groups.commit("pending", 4, partition=1, producer=PRODUCER)
    groups.commit("during", 5, partition=1)
    groups.commit("with a time to expire", 6, group_id="old", retention_ms=DAY_MS)
    groups.carry_out([NOTHING._replace(records=groups.machine.delete_group("gone")[1])])
    raw = GroupMachine(groups.config)
    taken, runs = load_raw(raw, groups.log)
    list(raw.loaded(EMPTY_IMAGE, groups.now))
    raw.end_transaction(PRODUCER, committed=True)
    groups.end_transaction(PRODUCER, committed=True)
    groups.restart()
    assert taken >= 105
    assert runs < 20
    assert contents(raw) == contents(groups.machine)
    assert raw.offsets.store.offset_count == groups.machine.offsets.store.offset_count
    assert set(raw.groups) == {GROUP, "old", "many"}


def load_raw(machine: GroupMachine, log: Sequence[Any]) -> tuple[int, int]:
    """Replay a log as it lies on a disk; return how many records were taken so, and in how many runs."""
    taken, runs = 0, 0
    for producer, entries in itertools.groupby(log, key=lambda entry: entry[1]):
        records = [record for record, _ in entries]
        pairs = [(encode_key(each.key), each.value and encode_value(each.value)) for each in records]
        batch = build_batch([SimpleRecord(*pair) for pair in pairs])
        for run in read_key_runs(batch, read_header(batch)):
            these, records = records[: len(run.ends)], records[len(run.ends) :]
            if producer is None and machine.replay_raw(run):
                taken += len(run.ends)
                runs += 1
                continue
            for record in these:
                machine.replay(record, producer)
    return taken, runs


def test_offsets_that_are_released_go_a_slice_at_a_time() -> None:
    """A million objects that go at once keep everybody waiting who is served beside them."""
    groups = GroupConversation()
    for partition in range(5_000):
        groups.commit(partition, 1, partition=partition)
    groups.join("a", group_id="joined")
    kept = weakref.ref(groups.machine.groups["joined"])
    assert len(list(groups.machine.release())) == 4
    assert len(groups.machine.timers) == 0
    assert contents(groups.machine) == {}
    assert list(groups.machine.groups) == []
    assert kept() is None


def contents(machine: GroupMachine) -> object:
    store = machine.offsets.store
    return {
        (group_id, topic, partition): store.get(group_id, topic, partition)
        for group_id in store
        for topic, partitions in store.topics(group_id).items()
        for partition in partitions
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0\2\0\1g", None), (b"\0\0\0\1g\0\1t\0\0\0\0", b"\0\0"), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\7")],
    ids=["a group", "the oldest type", "an unknown version"],
)
def test_raw_record_that_is_no_known_offset_is_left_to_be_decoded(key: bytes, value: bytes | None) -> None:
    """Or refused, if it is of a version that only a newer broker understands."""
    assert not GroupConversation().machine.replay_raw(KeyRun(key[:-4], (key[-4:],), (value,)))


# ---- transactions ------------------------------------------------------------------------------------


def test_offset_of_a_transaction_shows_with_its_end_alone() -> None:
    """Exactly once rests on it; who asks for stable offsets is told to wait until then (KIP-447)."""
    groups = GroupConversation()
    groups.commit("before", 1)
    groups.commit("c", 5, producer=PRODUCER)
    assert groups.fetch() == 1
    assert groups.fetch(require_stable=True) is ErrorCode.unstable_offset_commit
    groups.restart()
    assert groups.fetch(require_stable=True) is ErrorCode.unstable_offset_commit
    groups.end_transaction(PRODUCER, committed=True)
    assert groups.fetch(require_stable=True) == 5
    groups.restart()
    assert groups.fetch() == 5


def test_offset_of_an_aborted_transaction_never_shows() -> None:
    """All or nothing."""
    groups = GroupConversation()
    groups.commit("c", 5, producer=PRODUCER)
    groups.end_transaction(PRODUCER, committed=False)
    assert groups.fetch(require_stable=True) is None
    groups.restart()
    assert groups.fetch(require_stable=True) is None


def test_offset_that_was_committed_after_that_of_a_transaction_stays_when_this_ends() -> None:
    """The log, once compacted, has only the later one: the state must be the same before and after."""
    groups = GroupConversation()
    groups.commit("in", 5, producer=PRODUCER)
    groups.commit("outside", 7)
    groups.end_transaction(PRODUCER, committed=True)
    assert groups.fetch() == 7


def test_transactions_that_overlap_leave_what_was_appended_last() -> None:
    """Whichever of them ends first."""
    groups = GroupConversation()
    groups.commit("first", 5, producer=PRODUCER)
    groups.commit("second", 7, producer=OTHER)
    groups.end_transaction(OTHER, committed=True)
    assert groups.fetch(require_stable=True) is ErrorCode.unstable_offset_commit
    groups.end_transaction(PRODUCER, committed=True)
    assert groups.fetch(require_stable=True) == 7


def test_tombstone_takes_pending_offsets_with_it() -> None:
    """What was deleted must not come back when a transaction ends."""
    groups = GroupConversation()
    groups.commit("in", 5, producer=PRODUCER)
    assert delete(groups) is ErrorCode.none
    groups.end_transaction(PRODUCER, committed=True)
    assert groups.fetch(require_stable=True) is None
    assert list(groups.machine.offsets.store) == []


def test_transactional_commit_of_an_older_generation_is_refused() -> None:
    """A zombie of a consume-transform-produce loop is fenced by its generation (KIP-447)."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a")
    assert groups.commit("old", 1, member_id, 0, producer=PRODUCER) is ErrorCode.illegal_generation
    assert groups.commit("stranger", 1, "x", 1, producer=PRODUCER) is ErrorCode.unknown_member_id
    assert groups.commit("mine", 1, member_id, 1, producer=PRODUCER) is ErrorCode.none
    assert groups.commit("older client", 1, producer=PRODUCER) is ErrorCode.none
    assert groups.commit("none", 1, "x", 3, group_id="no", producer=PRODUCER) is ErrorCode.illegal_generation


# ---- deleting ----------------------------------------------------------------------------------------


def test_offset_of_a_topic_that_members_read_cannot_be_deleted() -> None:
    """They would begin anew when they restart (KIP-496)."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a")
    groups.commit("read", 1, member_id, 1)
    groups.commit("left", 1, member_id, 1, topic="left")
    assert delete(groups) is ErrorCode.group_subscribed_to_topic
    assert delete(groups, topic="left") is ErrorCode.none
    assert (groups.fetch(), groups.fetch(topic="left")) == (1, None)


@pytest.mark.parametrize(
    ("members", "names", "deleted"),
    [
        (3, MAX_NAMES, ErrorCode.none),
        (1, MAX_NAMES + 1, ErrorCode.group_subscribed_to_topic),
    ],
    ids=["all say the same", "too much"],
)
def test_offset_of_a_group_that_names_more_than_is_read_cannot_be_deleted(
    members: int, names: int, deleted: ErrorCode
) -> None:
    """A request full of names was half a minute of the broker's loop, and cost it its lease."""
    groups = GroupConversation()
    metadata = consumer_metadata(*(f"topic-{number}" for number in range(names)))
    _, (member_id, *_) = groups.settle(*"abc"[:members], protocols=(("range", metadata),))
    groups.commit("left", 1, member_id, 1, topic="left")
    assert delete(groups, topic="left") is deleted
    assert delete(groups, topic="topic-0") is ErrorCode.group_subscribed_to_topic


def test_offset_of_a_group_whose_members_name_more_than_is_read_between_them_cannot_be_deleted() -> None:
    """Each of them says little."""
    groups = GroupConversation()
    for name in "ab":
        metadata = consumer_metadata(*(f"{name}-{number}" for number in range(MAX_NAMES // 2 + 1)))
        groups.join(name, protocols=(("range", metadata),), needs_known_member_id=False)
    groups.pass_time(6_000)
    generation = groups.assign("a", "b")
    groups.commit("left", 1, groups.answers["a"].member_id, generation, topic="left")
    assert delete(groups, topic="left") is ErrorCode.group_subscribed_to_topic


def test_offset_of_a_group_that_says_not_what_it_reads_cannot_be_deleted_while_it_lives() -> None:
    """Connect's groups and the like: nobody knows."""
    groups = GroupConversation()
    groups.settle("a", protocol_type="connect")
    assert delete(groups) is ErrorCode.non_empty_group


def test_group_is_deleted_with_its_offsets_when_nobody_is_in_it() -> None:
    """Those of open transactions too."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a")
    groups.commit("c", 1, member_id, 1)
    groups.commit("t", 1, member_id, 1, partition=1, producer=PRODUCER)
    assert delete_group(groups) is ErrorCode.non_empty_group
    groups.leave("bye", (member_id, None))
    assert delete_group(groups) is ErrorCode.none
    assert delete_group(groups) is ErrorCode.group_id_not_found
    groups.end_transaction(PRODUCER, committed=True)
    groups.restart()
    assert (groups.machine.groups, groups.fetch(), groups.fetch(1)) == ({}, None, None)


def test_deletion_of_a_topic_removes_its_offsets_and_not_those_of_its_successor() -> None:
    """Else a topic of the same name is read from where the old one was left."""
    groups = GroupConversation()
    groups.commit("old", 1, topic_id=TOPIC_ID)
    groups.commit("new", 2, topic_id=NEXT_TOPIC_ID, partition=1)
    groups.commit("other", 3, topic="other")
    delta = MetadataDelta(deleted_topics={TOPIC_ID: "topic"})
    groups.carry_out(groups.machine.metadata_changed(EMPTY_IMAGE, delta, groups.now))
    groups.pass_time(10)
    assert (groups.fetch(0), groups.fetch(1), groups.fetch(topic="other")) == (None, 2, 3)


def test_deletions_of_two_topics_at_once_are_both_seen_to() -> None:
    """As after a load, when all is told that happened during it."""
    groups = GroupConversation()
    for number in range(1_500):
        groups.commit(number, 1, group_id=f"group {number}", topic_id=TOPIC_ID)
        groups.commit(f"other {number}", 1, group_id=f"group {number}", topic_id=NEXT_TOPIC_ID, topic="other")
    for topic_id, topic in ((TOPIC_ID, "topic"), (NEXT_TOPIC_ID, "other")):
        delta = MetadataDelta(deleted_topics={topic_id: topic})
        groups.carry_out(groups.machine.metadata_changed(EMPTY_IMAGE, delta, groups.now))
    groups.pass_time(100)
    assert not list(groups.machine.offsets.store)


def test_deletion_of_a_topic_that_many_groups_read_is_done_in_steps() -> None:
    """All at once would hold up everything else on the broker, its lease included, for seconds."""
    groups = GroupConversation()
    for number in range(2_500):
        groups.commit(number, 1, group_id=f"group {number}", topic_id=TOPIC_ID)
    delta = MetadataDelta(deleted_topics={TOPIC_ID: "topic"})
    at_once = [*groups.machine.metadata_changed(EMPTY_IMAGE, delta, groups.now)]
    assert sum(len(decision.records) for decision in at_once) == 0
    sizes = []
    for step in range(10):
        at = len(groups.log)
        groups.carry_out(groups.machine.tick(groups.now))
        sizes.append(len(groups.log) - at)
        if step == 0:  # a topic of the same name has come
            groups.commit("new", 9, group_id="group 2400", topic_id=NEXT_TOPIC_ID)
        groups.now_ms += 1
    assert max(sizes) <= 1_000
    assert [groups.fetch(group_id=f"group {number}") for number in (0, 2_399, 2_400)] == [None, None, 9]


# ---- expiry ------------------------------------------------------------------------------------------


def test_offset_of_a_simple_group_expires_after_its_commit_and_the_group_with_the_last_one() -> None:
    """Nobody can tell whether it is still used but by commits (KIP-211)."""
    groups = GroupConversation(offsets_retention_minutes="1440")
    groups.commit("first", 1)
    groups.pass_time(DAY_MS // 2)
    groups.commit("second", 1, partition=1)
    groups.pass_time(DAY_MS // 2 + 600_000)
    assert (groups.fetch(0), groups.fetch(1)) == (None, 1)
    groups.pass_time(DAY_MS // 2)
    assert groups.machine.groups == {}
    groups.restart()
    assert groups.machine.groups == {}


def test_offsets_of_a_group_expire_since_it_is_empty_and_not_while_somebody_reads_them() -> None:
    """However long ago a quiet partition was committed."""
    groups = GroupConversation()
    _, (member_id,) = groups.settle("a", session_timeout_ms=1_800_000)
    groups.commit("c", 1, member_id, 1)
    groups.commit("left", 1, member_id, 1, topic="left")
    for number in range(8 * 96):
        groups.pass_time(DAY_MS // 96)
        groups.heartbeat(number, member_id, 1)
    assert (groups.fetch(), groups.fetch(topic="left")) == (1, None)
    groups.leave("bye", (member_id, None))
    groups.pass_time(WEEK_MS - 600_000)
    assert groups.fetch() == 1
    groups.pass_time(1_200_000)
    assert groups.fetch() is None
    assert groups.machine.groups == {}


def test_offset_with_a_retention_of_its_own_expires_when_its_client_said() -> None:
    """Clients before OffsetCommit 5 say how long they want it kept."""
    groups = GroupConversation()
    groups.commit("c", 1, retention_ms=DAY_MS)
    groups.pass_time(DAY_MS - 600_000)
    assert groups.fetch() == 1
    groups.pass_time(1_200_000)
    assert groups.fetch() is None


def test_offset_with_a_pending_one_does_not_expire() -> None:
    """Its transaction may end in a commit."""
    groups = GroupConversation()
    groups.commit("c", 1)
    groups.commit("t", 2, producer=PRODUCER)
    groups.pass_time(WEEK_MS + DAY_MS)
    assert groups.fetch() == 1
    groups.end_transaction(PRODUCER, committed=False)
    groups.pass_time(1_200_000)
    assert groups.fetch() is None


def test_expiry_of_many_is_done_in_batches_and_spares_what_was_committed_in_between() -> None:
    """A batch beyond max.message.bytes cannot be written, and a partition must not stand still."""
    groups = GroupConversation(offsets_retention_minutes="60")  # or a week's checks of them all are made
    for partition in range(2_500):
        groups.commit(partition, 1, partition=partition)
    groups.pass_time(60 * 60 * 1000 - 10_000)
    groups.now_ms += 1_200_000
    sizes = []
    for step in range(10):
        at = len(groups.log)
        groups.carry_out(groups.machine.tick(groups.now))
        sizes.append(len(groups.log) - at)
        if step == 1:
            groups.commit("late", 9, partition=2_400)
        groups.now_ms += 1
    assert max(sizes) <= 1_000
    assert (groups.fetch(0), groups.fetch(2_399), groups.fetch(2_400)) == (None, None, 9)
    tombstones = [record for record in groups.records if record.value is None]
    assert all(isinstance(record.key, OffsetCommitKey) for record in tombstones)
    assert len(tombstones) == 2_499


class _Batches(GroupConversation):
    """Notes how large what it appends is."""

    largest_bytes = 0

    def carry_out(self, decisions: Iterable[CoordinatorResult]) -> None:
        def noted() -> Iterator[CoordinatorResult]:
            for decision in decisions:
                batch = 0
                for key, value in decision.records:
                    batch += len(encode_key(key)) + (0 if value is None else len(encode_value(value)))
                self.largest_bytes = max(self.largest_bytes, batch)
                yield decision

        super().carry_out(noted())


@pytest.mark.parametrize("goes", ["expires", "topic deleted", "group deleted"])
def test_offsets_of_a_group_with_a_long_name_leave_in_batches_that_can_be_written(goes: str) -> None:
    """One that is refused left the offsets of all groups in it, to be read for the next topic of the name."""
    groups = _Batches(offsets_retention_minutes="60")
    long = "x" * 32_000
    for number in range(40):
        groups.commit(number, 1, group_id=f"group {number}", topic_id=TOPIC_ID)
        groups.commit(f"long {number}", 1, group_id=long, partition=number, topic_id=TOPIC_ID)
    groups.largest_bytes = 0
    if goes == "expires":
        groups.pass_time(DAY_MS)
    elif goes == "topic deleted":
        delta = MetadataDelta(deleted_topics={TOPIC_ID: "topic"})
        groups.carry_out(groups.machine.metadata_changed(EMPTY_IMAGE, delta, groups.now))
        groups.pass_time(100)
    else:
        while delete_group(groups, long) is ErrorCode.none:
            pass
    left = ["group 0"] if goes == "group deleted" else []
    assert list(groups.machine.offsets.store)[:1] == left
    assert long not in groups.machine.groups
    assert 32_000 < groups.largest_bytes < 65_536
