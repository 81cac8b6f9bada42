"""What members of the consumer protocol are told, and what becomes of their group."""

from typing import Any

import pytest

from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.offsets import CommittedPartition, OffsetCommit
from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.records.consumer_offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.coordinators.groups.consumer_conversation import (
    ConsumerConversation,
    id_of,
    image_of,
    partitions_of,
)
from tests.unit.executor.coordinators.groups.group_conversation import GROUP


def settled(*member_ids: str, topics: dict[str, int] | None = None, **keys: str) -> ConsumerConversation:
    """Return a group in which these members share topic `t`."""
    talk = ConsumerConversation(topics, **keys)
    for member_id in member_ids:
        talk.enter(member_id)
    talk.settle_members(*member_ids)
    return talk


def test_first_member_joins_gets_everything_at_once() -> None:
    """A group of one does not wait for others: who comes later gets its share then."""
    talk = ConsumerConversation()

    answer = talk.enter("a")

    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.none, "a", 2)
    assert answer.heartbeat_interval.total_seconds() == 5
    assert partitions_of(answer.assignment) == {"t": {0, 1, 2, 3}}
    assert talk.group.state_name == "Stable"


def test_second_member_joins_gets_its_share_when_the_first_has_given_it_up() -> None:
    """A partition has one owner: revoked, then released, then assigned."""
    talk = settled("a")
    talk.pass_time(1_000)

    assert partitions_of(talk.enter("b").assignment) == {}
    assert (talk.group.state_name, talk.epochs) == ("Reconciling", {"a": 2, "b": 3})
    told = talk.beat("a")
    assert (told.member_epoch, partitions_of(told.assignment)) == (2, {"t": {0, 1}})
    assert talk.beat("b").assignment is None, "the first has not said yet that it gave them up"
    assert talk.beat("a").member_epoch == 3
    assert partitions_of(talk.beat("b").assignment) == {"t": {2, 3}}
    assert talk.group.state_name == "Stable"


def test_member_that_says_nothing_of_what_it_owns_gives_nothing_up() -> None:
    """An incremental heartbeat leaves out what has not changed, so silence is no revocation."""
    talk = settled("a")
    talk.enter("b")
    talk.beat("a")

    assert talk.beat("a", owned=None).member_epoch == 2
    assert talk.beat("b").assignment is None


def test_heartbeat_nothing_changed_writes_nothing_and_tells_no_assignment() -> None:
    """Most heartbeats are of this kind, thousands a second."""
    talk = settled("a", "b")
    written = len(talk.log)

    answer = talk.beat("a", owned=None)

    assert (answer.error_code, answer.assignment, len(talk.log)) == (ErrorCode.none, None, written)


def test_heartbeat_that_says_everything_is_told_its_assignment() -> None:
    """A client that has lost an answer does not know what it was told."""
    talk = settled("a")

    answer = talk.beat("a", names=("t",), rebalance_timeout_ms=60_000)

    assert partitions_of(answer.assignment) == {"t": {0, 1, 2, 3}}


def test_member_leaves_gives_its_share_to_the_others() -> None:
    talk = settled("a", "b")

    answer = talk.send("a", -1)

    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, -1)
    assert talk.settle_members("b") == {"b": {"t": {0, 1, 2, 3}}}
    assert set(talk.group.members) == {"b"}


def test_last_member_leaves_an_empty_group_that_can_be_deleted() -> None:
    talk = settled("a")
    assert talk.group.validate_delete() is ErrorCode.non_empty_group

    talk.send("a", -1)

    assert (talk.group.state_name, talk.group.validate_delete()) == ("Empty", ErrorCode.none)
    assert talk.machine.delete_group(GROUP)[0] is ErrorCode.none


def test_member_silent_for_a_session_is_removed() -> None:
    talk = settled("a", "b")
    for _ in range(9):
        talk.pass_time(5_000)
        talk.beat("b")

    assert talk.settle_members("b") == {"b": {"t": {0, 1, 2, 3}}}
    assert talk.send("a", 3).error_code is ErrorCode.unknown_member_id


def test_session_timeout_of_the_group_goes_before_the_brokers() -> None:
    talk = settled("a", group_consumer_min_session_timeout_ms="10000")
    talk.configure_group(consumer_session_timeout_ms="10000", consumer_heartbeat_interval_ms="7000")

    assert talk.beat("a").heartbeat_interval.total_seconds() == 7
    talk.pass_time(10_000)
    assert talk.group.is_empty


def test_session_timeout_of_the_group_beyond_the_brokers_bounds_of_now_is_the_bound() -> None:
    """The controller has checked it by those of then (Kafka 4.3 clamps it when it is used)."""
    talk = settled("a", group_consumer_max_session_timeout_ms="50000")
    talk.configure_group(consumer_session_timeout_ms="60000")

    talk.beat("a")
    talk.pass_time(49_999)
    assert not talk.group.is_empty
    talk.pass_time(1)
    assert talk.group.is_empty


def test_member_that_gives_nothing_up_within_its_rebalance_timeout_is_removed() -> None:
    """Others wait for its partitions, and it may go on sending heartbeats for ever."""
    talk = ConsumerConversation()
    talk.enter("a", rebalance_timeout_ms=20_000)
    talk.pass_time(1_000)
    talk.enter("b")
    talk.beat("a")

    kept = {"t": {0, 1, 2, 3}}
    for _ in range(5):
        talk.pass_time(5_000)
        talk.send("a", 2, owned=kept)
        talk.beat("b")

    assert talk.settle_members("b") == {"b": kept}
    assert set(talk.group.members) == {"b"}


def test_member_with_a_newer_epoch_than_the_coordinators_is_fenced() -> None:
    talk = settled("a")

    answer = talk.send("a", 3, owned=talk.owned["a"])

    assert answer.error_code is ErrorCode.fenced_member_epoch
    assert answer.error_message == (
        "The consumer group member has a greater member epoch (3) than the one known by the group "
        "coordinator (2). The member must abandon all its partitions and rejoin."
    )


def test_member_that_missed_the_last_answer_goes_on_if_it_owns_nothing_else() -> None:
    """The answer with the new epoch may have been lost; the member cannot know it then."""
    talk = settled("a", "b")
    before = talk.epochs["a"]
    talk.send("b", -1)
    talk.beat("a")
    assert talk.epochs["a"] == before + 1

    assert talk.send("a", before, owned={"t": {0, 1}}).error_code is ErrorCode.none
    assert talk.send("a", before, owned={"t": {9}}).error_code is ErrorCode.fenced_member_epoch
    assert talk.send("a", before).error_code is ErrorCode.fenced_member_epoch
    assert talk.send("a", before - 1, owned={}).error_code is ErrorCode.fenced_member_epoch


def test_member_that_joins_again_keeps_its_place() -> None:
    """A fenced member gives everything up and begins with epoch 0 (KIP-848)."""
    talk = settled("a", "b")

    answer = talk.enter("a")

    assert answer.error_code is ErrorCode.none
    assert partitions_of(answer.assignment) == {"t": {0, 1}}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "error", "message"),
    [
        ("", 0, {}, ErrorCode.invalid_request, "MemberId can't be empty."),
        ("a", 0, {"group_id": " "}, ErrorCode.invalid_request, "GroupId can't be empty."),
        ("a", 0, {"instance_id": ""}, ErrorCode.invalid_request, "InstanceId can't be empty."),
        ("a", 0, {"rack_id": ""}, ErrorCode.invalid_request, "RackId can't be empty."),
        ("a", 0, {}, ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request."),
        (
            "a",
            0,
            {"rebalance_timeout_ms": 1},
            ErrorCode.invalid_request,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            "a",
            0,
            {"rebalance_timeout_ms": 1, "owned": {"t": {1}}},
            ErrorCode.invalid_request,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            "a",
            0,
            {"rebalance_timeout_ms": 1, "owned": {}},
            ErrorCode.invalid_request,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ("a", -2, {}, ErrorCode.invalid_request, "InstanceId can't be null."),
        ("a", -3, {}, ErrorCode.invalid_request, "MemberEpoch is invalid."),
        (
            "a",
            1,
            {"server_assignor": "best"},
            ErrorCode.unsupported_assignor,
            "ServerAssignor best is not supported. Supported assignors: uniform, range.",
        ),
        ("a", 1, {}, ErrorCode.group_id_not_found, "Consumer group group not found."),
        ("a", -1, {}, ErrorCode.group_id_not_found, "Group group not found."),
    ],
)
def test_heartbeat_that_makes_no_sense_is_refused_as_kafka_does(
    member_id: str, epoch: int, fields: dict[str, Any], error: ErrorCode, message: str
) -> None:
    """Clients and their users know these texts."""
    talk = ConsumerConversation()

    answer = talk.send(member_id, epoch, **fields)

    assert (answer.error_code, answer.error_message) == (error, message)
    assert talk.log == []


def test_member_without_an_id_is_given_one_by_version_0() -> None:
    """Since version 1 clients make their own, so that a lost answer leaves no member behind."""
    talk = ConsumerConversation()

    answer = talk.send("", 0, names=("t",), owned={}, rebalance_timeout_ms=1, api_version=0)

    assert (answer.error_code, answer.member_id) == (ErrorCode.none, "made-up")


def test_unknown_member_of_a_group_is_refused() -> None:
    answer = settled("a").send("b", 1, owned={})

    assert answer.error_code is ErrorCode.unknown_member_id
    assert answer.error_message == "Member b is not a member of group group."


def test_full_group_takes_nobody_else() -> None:
    talk = settled("a", group_consumer_max_size="1")

    answer = talk.enter("b")

    assert answer.error_code is ErrorCode.group_max_size_reached
    assert answer.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert talk.beat("a").error_code is ErrorCode.none


def test_topic_that_grows_is_assigned_with_the_next_heartbeats() -> None:
    talk = settled("a", "b")

    talk.change_topics({"t": 6})

    assert talk.settle_members("a", "b") == {"a": {"t": {0, 1, 4}}, "b": {"t": {2, 3, 5}}}


def test_topic_that_is_deleted_is_taken_from_its_readers() -> None:
    talk = ConsumerConversation({"t": 2, "u": 2})
    talk.enter("a", "t", "u")

    talk.change_topics({"t": 2})

    assert talk.settle_members("a") == {"a": {"t": {0, 1}}}


def test_topic_that_does_not_exist_yet_is_assigned_once_it_does() -> None:
    """Consumers subscribe to topics that producers create later."""
    talk = ConsumerConversation({})
    talk.enter("a", "t")

    talk.change_topics({"t": 2})

    assert talk.settle_members("a") == {"a": {"t": {0, 1}}}


def test_change_of_a_topic_that_has_gone_since_hides_no_other_change() -> None:
    """A machine that was being loaded hears of a change with the newest image, which lacks the topic."""
    talk = settled("a")
    grown = image_of({"t": 6}, offset=1)
    missed = MetadataDelta(changed_topics={id_of("gone"): frozenset({0}), id_of("t"): frozenset({4, 5})})

    talk.image = grown
    talk.carry_out(talk.machine.metadata_changed(grown, missed, talk.now))

    assert talk.settle_members("a") == {"a": {"t": {0, 1, 2, 3, 4, 5}}}


def test_group_of_other_topics_takes_no_notice_of_a_topic() -> None:
    """A topic's change costs the groups that read it, not all of a coordinator."""
    talk = settled("a")
    written = len(talk.log)

    talk.change_topics({"t": 4, "u": 1})
    talk.beat("a")

    assert len(talk.log) == written


def test_subscription_that_changes_gives_up_what_it_dropped_at_once() -> None:
    """Whatever the target assignment says, a client can't read what it has unsubscribed from."""
    talk = ConsumerConversation({"t": 2, "u": 2})
    talk.enter("a", "t")

    assert partitions_of(talk.beat("a", names=("u",)).assignment) == {}
    assert talk.settle_members("a") == {"a": {"u": {0, 1}}}


def test_assignment_waits_for_its_interval_and_takes_all_who_came_in_it() -> None:
    """Members that start together cost one assignment, not one each."""
    talk = ConsumerConversation({"t": 8})
    for member_id in "abcd":
        talk.enter(member_id)

    found = [key for key, _ in talk.records if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey)]
    assert len(found) == 1
    shares = talk.settle_members(*"abcd")
    assert sorted(len(owned["t"]) for owned in shares.values()) == [2, 2, 2, 2]
    found = [key for key, _ in talk.records if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey)]
    assert len(found) == 2


def test_interval_of_assignments_that_brokers_are_told_holds_at_once() -> None:
    """As in Kafka the coordinator obeys group.consumer.assignment.interval.ms without a restart."""
    talk = ConsumerConversation({"t": 8})
    talk.configure_brokers(group_consumer_assignment_interval_ms="0")
    for member_id in "abcd":
        talk.enter(member_id)

    found = [key for key, _ in talk.records if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey)]
    assert len(found) == 4


def test_assignor_is_the_one_that_most_members_name() -> None:
    talk = ConsumerConversation({"t": 2, "u": 2})
    for member_id in "ab":
        talk.enter(member_id, "t", "u", server_assignor="range")

    assert talk.settle_members("a", "b") == {"a": {"t": {0}, "u": {0}}, "b": {"t": {1}, "u": {1}}}
    assert talk.machine.consumer.describe(GROUP).assignor_name == "range"


def test_big_group_is_assigned_beside_the_loop_and_goes_on_meanwhile() -> None:
    talk = ConsumerConversation({"t": 3_000})
    talk.runs_at_once = False

    assert partitions_of(talk.enter("a").assignment) == {}
    assert len(talk.waiting) == 1
    talk.beat("a")
    assert len(talk.waiting) == 1, "it is being found already"

    talk.finish_in_executor()
    assert len(partitions_of(talk.beat("a").assignment)["t"]) == 3_000


def test_group_that_subscribes_to_very_much_is_assigned_beside_the_loop() -> None:
    """Few members and few partitions: assignors go through the topics of each member, which took a second."""
    names = [f"t{number}" for number in range(150)]
    talk = ConsumerConversation(dict.fromkeys(names, 1))
    joining = {"owned": {}, "names": names, "rebalance_timeout_ms": 60_000}
    for number in range(26):
        talk.send(f"m{number}", 0, **joining)
        talk.pass_time(1_000)
    assert talk.group.assignment_epoch == talk.group.group_epoch
    talk.runs_at_once = False
    talk.send("m26", 0, **joining)
    assert len(talk.waiting) == 1


def test_big_group_that_changed_while_it_was_assigned_is_assigned_again() -> None:
    """What was found is for members as they were; who has left since has nothing of it."""
    talk = ConsumerConversation({"t": 3_000})
    for member_id in "abc":
        talk.enter(member_id)
        talk.pass_time(1_000)
    talk.settle_members(*"abc")
    talk.runs_at_once = False
    talk.change_topics({"t": 3_003})
    talk.beat("a")

    talk.send("b", -1)
    talk.finish_in_executor()

    assert talk.group.assignment_epoch == talk.group.group_epoch - 1
    assert set(talk.group.targets) == {"a", "c"}
    talk.runs_at_once = True
    shares = talk.settle_members("a", "c", rounds=8)
    assert sum(len(owned["t"]) for owned in shares.values()) == 3_003


def test_big_group_whose_search_failed_to_be_written_down_asks_again() -> None:
    talk = ConsumerConversation({"t": 3_000})
    talk.runs_at_once = False
    talk.append_error = ErrorCode.not_enough_replicas
    talk.enter("a")
    assert talk.waiting == []

    talk.enter("a")
    assert len(talk.waiting) == 1


def test_group_that_is_created_and_fails_to_be_written_down_does_not_exist() -> None:
    talk = ConsumerConversation()
    talk.append_error = ErrorCode.not_enough_replicas

    talk.enter("a")

    assert talk.machine.groups.get(GROUP) is None
    assert talk.enter("a").member_epoch == 2


def test_expiry_that_failed_to_be_written_down_is_tried_again() -> None:
    talk = settled("a")
    talk.append_error = ErrorCode.not_enough_replicas

    talk.pass_time(45_000)
    assert set(talk.group.members) == {"a"}
    talk.pass_time(45_000)

    assert talk.group.is_empty


def test_next_coordinator_gives_each_member_a_whole_session() -> None:
    """Members could not send heartbeats while there was no coordinator."""
    talk = settled("a", "b")
    talk.pass_time(40_000)

    talk.restart()
    talk.pass_time(40_000)

    assert talk.settle_members("a", "b") == {"a": {"t": {0, 1}}, "b": {"t": {2, 3}}}
    talk.restart()
    talk.pass_time(46_000)
    assert talk.group.is_empty


def test_next_coordinator_goes_on_where_the_last_one_was() -> None:
    talk = settled("a")
    talk.enter("b")
    talk.beat("a")

    talk.restart()

    assert talk.settle_members("a", "b") == {"a": {"t": {0, 1}}, "b": {"t": {2, 3}}}


def test_empty_group_of_the_classic_protocol_is_replaced() -> None:
    talk = ConsumerConversation()
    talk.commit("c", 7)

    assert talk.enter("a").error_code is ErrorCode.none

    assert isinstance(talk.machine.groups[GROUP], ConsumerGroup)
    assert talk.fetch(member_id="a", member_epoch=2) == 7


def test_description_tells_of_members_what_they_have_and_what_they_shall_have() -> None:
    talk = settled("a")
    talk.enter("b", rack_id="r1")
    talk.beat("a")

    group = talk.machine.consumer.describe(GROUP)

    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
        ErrorCode.none,
        "Reconciling",
        3,
        3,
    )
    assert group.assignor_name == "uniform"
    a, b = group.members
    assert partitions_of(a.assignment) == {"t": {0, 1, 2, 3}}, "it may still read what it has yet to give up"
    assert partitions_of(a.target_assignment) == {"t": {0, 1}}
    assert (a.member_epoch, a.member_type, a.subscribed_topic_names) == (2, 1, ("t",))
    assert partitions_of(b.assignment) == {}
    assert (b.rack_id, b.client_id, b.client_host) == ("r1", "client", "/127.0.0.1")
    missing = talk.machine.consumer.describe("other")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.group_id_not_found,
        "Group other not found.",
    )


def test_listing_tells_type_and_state() -> None:
    talk = settled("a")

    assert talk.machine.list_groups([GROUP, "none"], (), {"consumer"}) == [
        (GROUP, "consumer", "Stable", "consumer")
    ]
    assert talk.machine.list_groups([GROUP], {"empty"}, ()) == []


# ---- commits -------------------------------------------------------------------------------------------


def test_commit_member_epoch_decides() -> None:
    talk = settled("a")

    assert talk.commit("now", 5, "a", 2) is ErrorCode.none
    assert talk.commit("newer", 5, "a", 3) is ErrorCode.stale_member_epoch
    assert talk.commit("stranger", 5, "b", 2) is ErrorCode.unknown_member_id
    assert talk.commit("admin", 5) is ErrorCode.unknown_member_id
    assert talk.commit("old client", 5, "a", 2, api_version=8) is ErrorCode.unsupported_version
    assert talk.fetch(member_id="a", member_epoch=2) == 5
    assert talk.fetch(member_id="a", member_epoch=1) is ErrorCode.stale_member_epoch
    assert talk.fetch() == 5


def test_commit_with_the_epoch_before_is_taken_for_what_the_member_has_had_since() -> None:
    """The member's epoch rises between its poll and its commit; nobody else had the partition (KIP-1251)."""
    talk = settled("a")
    talk.enter("b")
    talk.settle_members("a", "b")
    assert talk.epochs["a"] == 3
    topic_id = id_of("t")

    assert talk.commit("kept", 5, "a", 2, topic="t", topic_id=topic_id) is ErrorCode.none
    assert talk.commit("given", 5, "a", 2, topic="t", topic_id=topic_id, partition=2) is (
        ErrorCode.stale_member_epoch
    )
    assert talk.commit("got", 5, "b", 2, topic="t", topic_id=topic_id, partition=2) is (
        ErrorCode.stale_member_epoch
    )


def test_commit_for_one_partition_that_is_not_the_members_any_more_takes_none() -> None:
    """Offsets of one poll belong together: what is refused of them is done again, all of it, as in Kafka."""
    talk = settled("a")
    talk.enter("b")
    talk.settle_members("a", "b")
    rows = tuple(CommittedPartition(partition, 5, -1, "") for partition in (0, 2))
    request = OffsetCommit(GROUP, "a", None, 2, 9, (("t", id_of("t"), rows),))

    records, errors = talk.machine.commit_offsets(request, talk.now)

    refused = ErrorCode.stale_member_epoch
    assert (records, errors) == ([], [("t", [(0, refused), (2, refused)])])


def test_transactional_commit_of_an_older_epoch_is_refused_by_what_producers_know() -> None:
    """They abort the transaction after ILLEGAL_GENERATION; STALE_MEMBER_EPOCH is fatal to them."""
    talk = settled("a")
    talk.enter("b")
    talk.settle_members("a", "b")
    fields: dict[str, Any] = {"topic": "t", "topic_id": id_of("t"), "producer": ProducerStamp(7, 0)}

    assert talk.commit("kept", 5, "a", 2, **fields) is ErrorCode.none
    assert talk.commit("given", 5, "a", 2, partition=2, **fields) is ErrorCode.illegal_generation


# ---- static members ------------------------------------------------------------------------------------


def test_static_member_that_is_back_within_its_session_costs_no_rebalance() -> None:
    """A rolling restart of an application: nobody else notices (KIP-345)."""
    talk = ConsumerConversation()
    for member_id in "ab":
        talk.enter(member_id, instance_id=f"i-{member_id}")
    talk.settle_members("a", "b")
    epoch = talk.group.group_epoch

    assert talk.send("a", -2, instance_id="i-a").member_epoch == -2
    assert talk.settle_members("b") == {"b": {"t": {2, 3}}}
    answer = talk.enter("a2", instance_id="i-a")

    assert (answer.error_code, talk.owned["a2"]) == (ErrorCode.none, {"t": {0, 1}})
    assert (talk.group.group_epoch, set(talk.group.members)) == (epoch, {"a2", "b"})
    assert talk.send("a", epoch, instance_id="i-a", owned={}).error_code is ErrorCode.fenced_instance_id
    assert talk.commit("late", 1, "a", epoch) is ErrorCode.unknown_member_id


def test_static_member_that_does_not_come_back_is_removed_after_its_session() -> None:
    talk = ConsumerConversation()
    for member_id in "ab":
        talk.enter(member_id, instance_id=f"i-{member_id}")
    talk.settle_members("a", "b")

    talk.send("a", -2, instance_id="i-a")
    for _ in range(9):
        talk.pass_time(5_000)
        talk.beat("b")

    assert talk.settle_members("b") == {"b": {"t": {0, 1, 2, 3}}}


def test_static_member_whose_instance_is_still_there_is_refused() -> None:
    """Two processes with one instance id: the first one keeps it until it has said that it goes."""
    talk = ConsumerConversation()
    talk.enter("a", instance_id="i")

    answer = talk.enter("b", instance_id="i")

    assert answer.error_code is ErrorCode.unreleased_instance_id
    assert answer.error_message == (
        "Static member b with instance id i cannot join the group because the instance id is owned by a "
        "member."
    )


def test_static_member_of_an_unknown_instance_is_refused() -> None:
    talk = settled("a")

    answer = talk.send("a", 2, instance_id="i", owned={})

    assert (answer.error_code, answer.error_message) == (
        ErrorCode.unknown_member_id,
        "Instance id i is unknown.",
    )


def test_static_member_leaves_for_good_with_the_epoch_of_those_who_do() -> None:
    talk = ConsumerConversation()
    talk.enter("a", instance_id="i")

    assert talk.send("b", -1, instance_id="i").error_code is ErrorCode.fenced_instance_id
    assert talk.send("a", -1, instance_id="i").error_code is ErrorCode.none
    assert talk.group.is_empty


def test_static_member_away_and_another_owner_meanwhile_assigned_is_no_double_owner() -> None:
    """Its partitions stay its own while it is away: who shall have some of them waits."""
    talk = ConsumerConversation()
    talk.enter("a", instance_id="i")
    talk.pass_time(1_100)
    talk.send("a", -2, instance_id="i")

    talk.enter("b")
    assert talk.settle_members("b") == {"b": {}}

    talk.enter("a2", instance_id="i")
    assert talk.settle_members("a2", "b") == {"a2": {"t": {0, 1}}, "b": {"t": {2, 3}}}


def test_group_epoch_is_written_whenever_it_rises() -> None:
    talk = settled("a", "b")

    epochs = [value.epoch for key, value in talk.records if isinstance(key, ConsumerGroupMetadataKey)]  # type: ignore[union-attr]

    assert epochs == [2, 3]
