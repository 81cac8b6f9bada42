"""Elections on request and by themselves, and eligible leader replicas."""

import itertools
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.elect_leaders.v2 import ElectLeadersRequest
from kio.schema.elect_leaders.v2.request import TopicPartitions
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.framing import decode_record, encode_record
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import (
    NO_LEADER,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
)
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from tests.counted_work import counted_calls
from tests.unit.driver.controller.conversation import CLUSTER_ID, Conversation, creatable, registration

PREFERRED, UNCLEAN = 0, 1


def elect(
    conversation: Conversation, election_type: int, *partitions: int, name: str = "t"
) -> ControllerResult:
    """Ask for an election, of all partitions if none is named."""
    return conversation.say(
        ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=(TopicPartitions(topic=name, partitions=partitions),) if partitions else None,
            timeout=timedelta(seconds=1),
        )
    )


def errors(reply: Any) -> list[ErrorCode]:
    """Return the errors of all partitions."""
    return [
        partition.error_code
        for topic in reply.replica_election_results
        for partition in topic.partition_result
    ]


@pytest.fixture
def moved() -> Conversation:
    """A partition that broker 1 leads after its preferred leader 0 was away; 0 is in sync again."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    conversation.say(registration(0, incarnation=2))
    conversation.heartbeat(0)
    conversation.propose(1, (1, 0))
    return conversation


def test_elect_preferred_gives_leadership_back(moved: Conversation) -> None:
    """After a restart of every broker all leaders would lie on the last one otherwise."""
    decision = elect(moved, PREFERRED, 0)
    assert decision.records == [PartitionChangeRecord(partition_id=0, topic_id=moved.topic_id(), leader=0)]
    assert errors(decision.reply) == [ErrorCode.none]
    assert errors(elect(moved, PREFERRED, 0).reply) == [ErrorCode.election_not_needed]


def test_elect_preferred_of_all_is_silent_about_what_is_right(moved: Conversation) -> None:
    """Kafka answers a request for all partitions with those that were not right."""
    moved.create(creatable("u", assignments={0: (0, 1)}))
    assert errors(elect(moved, PREFERRED).reply) == [ErrorCode.none]


def test_elect_preferred_not_in_sync_is_refused() -> None:
    """The preferred replica leads only when it has every committed record."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    decision = elect(conversation, PREFERRED, 0)
    assert (decision.records, errors(decision.reply)) == ([], [ErrorCode.preferred_leader_not_available])


def test_elect_unclean_takes_what_is_there() -> None:
    """The administrator has decided that an old log is better than none."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.propose(0, (0,))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    decision = elect(conversation, UNCLEAN, 0)
    assert decision.records == [
        PartitionChangeRecord(
            partition_id=0,
            topic_id=conversation.topic_id(),
            isr=(1,),
            leader=1,
            leader_recovery_state=1,
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
    ]


def test_elect_for_unknown_partition_or_type_is_refused(moved: Conversation) -> None:
    """The request of a confused client changes nothing."""
    assert errors(elect(moved, PREFERRED, 9).reply) == [ErrorCode.unknown_topic_or_partition]
    assert elect(moved, 7, 0).reply.error_code is ErrorCode.invalid_request


def test_balance_comes_by_itself_after_its_interval(moved: Conversation) -> None:
    """Nobody should have to remember to restore the leaders."""
    moved.tick()
    for _ in range(299):
        moved.heartbeat(0)
        moved.heartbeat(1)
        assert moved.tick(1000) == []
    moved.heartbeat(0)
    moved.heartbeat(1)
    assert moved.tick(1000) == [PartitionChangeRecord(partition_id=0, topic_id=moved.topic_id(), leader=0)]


@pytest.fixture
def strict() -> Conversation:
    """Three replicas of which two must be in sync."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    return conversation


def gone(conversation: Conversation, *broker_ids: int) -> ControllerResult:
    """Let brokers' processes end, one after the other; return the last decision."""
    for broker_id in broker_ids:
        epoch = conversation.epoch(broker_id)
        decision = conversation.take(conversation.controller.broker_gone(broker_id, epoch))
    return decision


def back(conversation: Conversation, broker_id: int, *, clean: bool) -> None:
    """Let a broker's next process come, after a clean stop or a crash, and apply its registration."""
    previous = conversation.epoch(broker_id) if clean else -1
    incarnation = conversation.image.end_offset
    request = registration(broker_id, incarnation=incarnation, previous_broker_epoch=previous)
    assert conversation.say(request).reply.error_code is ErrorCode.none
    assert not conversation.heartbeat(broker_id).reply.is_fenced


def alteration(
    key: str, value: str | None, *, name: str = "t", resource_type: int = 2
) -> IncrementalAlterConfigsRequest:
    """Return the request that sets a configuration, of the topic if nothing else is said, or deletes it."""
    operation = 1 if value is None else 0
    change = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=(AlterableConfig(name=key, config_operation=operation, value=value),),
    )
    return IncrementalAlterConfigsRequest(resources=(change,), validate_only=False)


def state(conversation: Conversation) -> dict[str, Any]:
    """Return what an election looks at and changes."""
    partition = conversation.partition()
    return {
        "leader": partition.leader,
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known": partition.last_known_elr,
        "recovering": bool(partition.leader_recovery_state),
    }


def leads(leader: int | None, isr: tuple[int, ...] = (), **other: Any) -> dict[str, Any]:
    """Return such a state, with nothing in it that is not said."""
    return {"leader": leader, "isr": isr, "elr": (), "last_known": (), "recovering": False} | other


def test_eligible_replicas_last_failures_leave_them_behind(strict: Conversation) -> None:
    """Below min.insync.replicas nothing is committed, so those who leave then still have everything."""
    gone(strict, 0)
    assert state(strict) == leads(1, (1, 2))
    gone(strict, 1)
    assert state(strict) == leads(2, (2,), elr=(1,))
    gone(strict, 2)
    assert state(strict) == leads(None, elr=(1, 2), last_known=(2, 1))


def test_eligible_replica_back_after_clean_stop_leads(strict: Conversation) -> None:
    """A clean election although every in-sync replica had failed."""
    gone(strict, 0, 1, 2)
    back(strict, 0, clean=True)
    assert state(strict) == leads(None, elr=(1, 2), last_known=(2, 1))
    back(strict, 1, clean=True)
    assert state(strict) == leads(1, (1,), elr=(2,))


def test_eligible_replica_back_after_crash_is_eligible_no_more(strict: Conversation) -> None:
    """Its unsynced tail may be gone, and with it what it had acknowledged."""
    gone(strict, 0, 1, 2)
    back(strict, 1, clean=False)
    assert state(strict) == leads(None, elr=(2,), last_known=(2, 1))
    back(strict, 2, clean=True)
    assert state(strict) == leads(2, (2,))


def test_brokers_that_fall_silent_together_all_stay_eligible(strict: Conversation) -> None:
    """None of them was left behind by the others: nobody knows which machine lost its power first."""
    strict.tick(20_000)
    assert all(strict.image.brokers[broker_id].fenced for broker_id in (0, 1, 2))
    assert state(strict) == leads(None, elr=(0, 1, 2), last_known=(0, 1, 2))
    back(strict, 1, clean=True)
    assert state(strict) == leads(1, (1,), elr=(0, 2))


def test_brokers_that_fall_silent_together_leave_the_leader_in_the_isr_without_eligible_replicas(
    strict: Conversation,
) -> None:
    """A cluster that was begun without the feature keeps the last member, so that somebody may lead again."""
    strict.take(
        ControllerResult([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)], None)
    )
    strict.tick(20_000)
    assert state(strict) == leads(None, (0,))


def test_partition_without_anybody_in_sync_stays_so_when_the_feature_is_turned_off(
    strict: Conversation,
) -> None:
    """Nobody can be kept in an ISR that is empty already."""
    gone(strict, 0, 1, 2)
    off = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    strict.take(ControllerResult([off], None))
    back(strict, 1, clean=True)
    assert state(strict) == leads(None, last_known=(2, 1))


def told(conversation: Conversation, **end_offsets: int) -> set[int]:
    """Let brokers (`b0=5`) say how far their logs reach, all in one epoch; return who was asked."""
    conversation.tick()
    questions = conversation.controller.log_questions(conversation.now_ms)
    for question in questions:
        end_offset = end_offsets.get(f"b{question.broker_id}")
        positions = {} if end_offset is None else {("t", 0): LogPosition(3, end_offset)}
        conversation.take(
            conversation.controller.log_question_answered(question, positions, conversation.now_ms)
        )
    return {question.broker_id for question in questions}


@pytest.mark.parametrize("minimum", ["2", "3"])
@pytest.mark.parametrize("order", list(itertools.permutations((0, 1, 2))))
def test_all_machines_crashed_longest_log_leads(minimum: str, order: tuple[int, ...]) -> None:
    """Nobody surely has everything, but what is on any disk is to stay, whoever led last and comes first."""
    conversation = Conversation(min_insync_replicas=minimum).start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    gone(conversation, 1, 0, 2)
    for broker_id in order:
        assert conversation.partition().leader is None
        back(conversation, broker_id, clean=False)
    assert told(conversation, b0=8, b1=7, b2=6) == {0, 1, 2}
    others = tuple(each for each in (2, 1) if minimum == "3" or each == 2)
    assert state(conversation) == leads(0, (0,), last_known=others, recovering=True)
    assert told(conversation) == set()


def test_longest_log_is_that_of_the_newest_epoch(strict: Conversation) -> None:
    """What follows in an older epoch was never committed beside it."""
    gone(strict, 0, 1, 2)
    for broker_id in (1, 2):
        back(strict, broker_id, clean=False)
    strict.tick()
    for question, position in zip(
        strict.controller.log_questions(strict.now_ms), (LogPosition(1, 9), LogPosition(2, 5)), strict=True
    ):
        strict.take(strict.controller.log_question_answered(question, {("t", 0): position}, strict.now_ms))
    assert state(strict) == leads(2, (2,), last_known=(1,), recovering=True)


@pytest.mark.parametrize(
    ("position", "leader"),
    [
        (LogPosition(2, 12), 2),  # of a leader of its own, whom nobody followed
        (LogPosition(2, 5), 2),
        (LogPosition(1, 12), 0),  # what the others lost
        (LogPosition(1, 8), 2),
        (LogPosition(0, 99), 2),
    ],
)
def test_log_of_who_was_not_in_sync_last_leads_if_it_goes_on_from_the_longest_of_those_who_were(
    strict: Conversation, position: LogPosition, leader: int
) -> None:
    """A leader of a later epoch has committed what is of an earlier one, beside what was written between."""
    gone(strict, 0, 1, 2)
    for broker_id in (1, 2, 0):
        back(strict, broker_id, clean=False)
    assert strict.partition().last_known_elr == (2, 1)
    strict.tick()
    said = {0: position, 1: LogPosition(0, 6), 2: LogPosition(1, 9)}
    for question in strict.controller.log_questions(strict.now_ms):
        positions = {("t", 0): said[question.broker_id]}
        strict.take(strict.controller.log_question_answered(question, positions, strict.now_ms))
    assert strict.partition().leader == leader


def test_nobody_leads_before_all_who_were_in_sync_last_have_said_how_far_they_reach(
    strict: Conversation,
) -> None:
    """One that is away, or gives no answer, may have what the others lost."""
    gone(strict, 0, 1, 2)
    assert state(strict) == leads(None, elr=(1, 2), last_known=(2, 1))
    back(strict, 2, clean=False)
    back(strict, 0, clean=False)
    assert told(strict, b0=9, b2=9) == set(), "broker 1 was in sync longer than broker 0"
    back(strict, 1, clean=False)
    assert told(strict, b0=5, b2=6) == {0, 1, 2}
    assert strict.partition().leader is None
    assert told(strict, b1=7) == {1}
    assert state(strict) == leads(1, (1,), last_known=(2,), recovering=True)


def test_answer_of_an_incarnation_that_is_gone_counts_no_more(strict: Conversation) -> None:
    """Its machine may have crashed once more since."""
    gone(strict, 0, 1, 2)
    back(strict, 1, clean=False)
    back(strict, 2, clean=False)
    told(strict, b1=9)
    gone(strict, 1)
    back(strict, 1, clean=False)
    assert told(strict, b1=4, b2=5) == {1, 2}
    assert state(strict) == leads(2, (2,), last_known=(1,), recovering=True)


def test_replica_that_has_just_registered_is_waited_for() -> None:
    """A new controller hears of all that happened from the registrations, so the last one counts alone."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    conversation.controller = Controller(CLUSTER_ID, conversation.config, uuid4, conversation.image)
    for broker_id in (2, 1, 0):
        conversation.say(registration(broker_id, incarnation=7))
    assert state(conversation) == leads(None, last_known=(0,))
    conversation.heartbeat(0)
    assert told(conversation, b0=5) == set()
    conversation.heartbeat(1)
    conversation.take(conversation.controller.broker_gone(2, conversation.epoch(2)))
    assert told(conversation, b0=5, b1=6) == {0, 1}, "broker 2 is not on its way any more"
    assert state(conversation) == leads(1, (1,), last_known=(0,), recovering=True)


def test_last_leader_that_was_in_sync_alone_leads_again() -> None:
    """Others that are there with longer logs all the same are asked too."""
    conversation = Conversation(min_insync_replicas="1").start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    gone(conversation, 1, 0, 2)
    back(conversation, 2, clean=False)
    conversation.tick()
    assert state(conversation) == leads(2, (2,), recovering=True)


@pytest.mark.parametrize("clean", [False, True])
def test_all_brokers_and_controller_gone_partition_has_leader_again(*, clean: bool) -> None:
    """A new controller learns of the deaths from the registrations alone, one by one."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    conversation.controller = Controller(CLUSTER_ID, conversation.config, uuid4, conversation.image)
    for broker_id in (0, 1, 2):
        request = registration(
            broker_id,
            incarnation=7,
            previous_broker_epoch=conversation.epoch(broker_id) if clean else -1,
        )
        assert conversation.say(request).reply.error_code is ErrorCode.none
    assert conversation.partition().leader is None
    for broker_id in (0, 1, 2):
        conversation.heartbeat(broker_id)
    if clean:
        assert state(conversation) == leads(1, (1,), elr=(2,))
    else:
        assert told(conversation, b0=1, b1=2, b2=3) == {0, 1, 2}
        assert state(conversation) == leads(2, (2,), recovering=True)


def test_last_leader_without_its_disk_is_not_elected(strict: Conversation) -> None:
    """An empty log must not become the one that all others are cut to."""
    gone(strict, 0, 1, 2)
    back(strict, 1, clean=False)
    strict.say(registration(2, incarnation=9, directories=(UUID(int=9000),)))
    strict.heartbeat(2)
    strict.tick()
    assert state(strict) == leads(1, (1,), last_known=(2,), recovering=True)


@pytest.fixture
def recovering(strict: Conversation) -> Conversation:
    """Broker 1 leads with the longest log of all, alone, and has committed nothing."""
    gone(strict, 0, 1, 2)
    for broker_id in (0, 1, 2):
        back(strict, broker_id, clean=False)
    assert told(strict, b0=5, b1=7, b2=6) == {0, 1, 2}
    assert state(strict) == leads(1, (1,), last_known=(2,), recovering=True)
    return strict


def test_leader_with_the_longest_log_lost_while_it_recovers_leaves_the_next_longest(
    recovering: Conversation,
) -> None:
    """Nothing was committed by it alone: what is left of what was is on the others' disks."""
    gone(recovering, 1)
    recovering.say(registration(1, incarnation=9, directories=(UUID(int=9000),)))
    recovering.heartbeat(1)
    assert told(recovering, b0=5, b2=6) == {0, 2}
    assert state(recovering) == leads(2, (2,), last_known=(1,), recovering=True)


def test_leader_with_the_longest_log_that_crashed_while_it_recovered_is_waited_for_with_the_others(
    recovering: Conversation,
) -> None:
    """It may have lost by now what another one has."""
    gone(recovering, 1, 2)
    back(recovering, 1, clean=False)
    assert told(recovering, b0=5, b1=4) == set(), "broker 2 was in sync at the end too"
    assert recovering.partition().last_known_elr == (1, 2)
    back(recovering, 2, clean=False)
    assert told(recovering, b0=5, b1=4, b2=6) == {0, 1, 2}
    assert state(recovering) == leads(2, (2,), last_known=(1,), recovering=True)


def test_leader_with_the_longest_log_is_alone_remembered_once_it_may_have_committed(
    recovering: Conversation,
) -> None:
    """Others than the ISR may lack what clients were told is safe."""
    recovering.propose(1, (0, 1), leader_recovery_state=0)
    assert state(recovering) == leads(1, (0, 1))
    gone(recovering, 0)
    assert state(recovering) == leads(1, (1,), elr=(0,))


def test_members_remembered_while_a_leader_recovers_are_forgotten_with_a_smaller_minimum(
    recovering: Conversation,
) -> None:
    """From then on the leader commits without them."""
    recovering.say(alteration("min.insync.replicas", "1"))
    assert state(recovering) == leads(1, (1,), recovering=True)


def test_partition_waits_when_no_disk_is_left_of_who_was_in_sync_last(strict: Conversation) -> None:
    """What the others have is less than what was committed: that is for somebody to allow."""
    gone(strict, 0, 1, 2)
    back(strict, 0, clean=False)
    for broker_id in (1, 2):
        strict.say(registration(broker_id, incarnation=9, directories=(UUID(int=9000 + broker_id),)))
        strict.heartbeat(broker_id)
    strict.tick()
    assert state(strict) == leads(None, last_known=(2, 1))
    assert errors(elect(strict, UNCLEAN, 0).reply) == [ErrorCode.none]
    assert state(strict) == leads(0, (0,), recovering=True)


def test_eligible_replicas_are_forgotten_when_isr_is_large_enough(strict: Conversation) -> None:
    """From then on records are committed without them."""
    gone(strict, 0, 1)
    assert state(strict) == leads(2, (2,), elr=(1,))
    back(strict, 0, clean=False)
    assert strict.propose(2, (2, 0)).records == [
        PartitionChangeRecord(
            partition_id=0, topic_id=strict.topic_id(), isr=(2, 0), eligible_leader_replicas=()
        )
    ]


def test_eligible_replica_that_leaves_isr_by_proposal_stays_eligible(strict: Conversation) -> None:
    """A follower that lags is as complete as one that dies: nothing was committed after it left."""
    strict.propose(0, (0, 1))
    strict.propose(0, (0,))
    assert state(strict) == leads(0, (0,), elr=(1,))
    gone(strict, 0)
    assert state(strict) == leads(1, (1,), elr=(0,))


def test_min_insync_replicas_changed_forgets_eligible_replicas(strict: Conversation) -> None:
    """Under a smaller minimum records are committed without them from now on."""
    gone(strict, 0, 1)
    decision = strict.say(alteration("min.insync.replicas", "1"))
    assert decision.records[1:] == [
        PartitionChangeRecord(partition_id=0, topic_id=strict.topic_id(), eligible_leader_replicas=())
    ]
    assert state(strict) == leads(2, (2,))
    gone(strict, 2)
    assert state(strict) == leads(None, elr=(2,), last_known=(2,))


def test_min_insync_replicas_changed_without_isr_keeps_eligible_replicas(strict: Conversation) -> None:
    """Nobody commits anything there meanwhile, and without them nobody might lead ever again.

    The simulator found partitions that had lost every candidate by a change of configuration.
    """
    gone(strict, 0, 1, 2)
    waiting = state(strict)
    strict.say(alteration("min.insync.replicas", "1"))
    assert state(strict) == waiting
    back(strict, 1, clean=True)
    # Alone it is enough now, and commits without the others.
    assert state(strict) == leads(1, (1,))


def test_driver_started_with_other_min_insync_replicas_forgets_eligible_replicas(
    strict: Conversation,
) -> None:
    """The same change, made in the configuration of the application and by starting it again."""
    gone(strict, 0, 1)
    smaller = BrokerConfig.from_mapping({"min.insync.replicas": "1"})
    restarted = Controller(CLUSTER_ID, smaller, uuid4, strict.image)
    assert restarted.bootstrap().records == [
        minimum_record(str(CONTROLLER_ID), "1"),
        minimum_record("", "1"),
        PartitionChangeRecord(partition_id=0, topic_id=strict.topic_id(), eligible_leader_replicas=()),
    ]
    same = Controller(CLUSTER_ID, strict.config, uuid4, strict.image)
    assert same.bootstrap().records == []


def minimum_record(resource_name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name=resource_name, name="min.insync.replicas", value=value)


def test_new_cluster_has_the_minimum_of_its_properties_as_the_default_of_all_brokers(
    strict: Conversation,
) -> None:
    """As in Kafka (KIP-966): clients and tools see it there, and none of a single broker counts."""
    assert strict.image.broker_configs(None) == {"min.insync.replicas": "2"}


def test_cluster_whose_earlier_version_kept_no_default_gets_one_and_keeps_its_eligible_replicas(
    strict: Conversation,
) -> None:
    """They were chosen under the same minimum."""
    strict.take(ControllerResult([minimum_record("", None)], None))
    gone(strict, 0, 1)
    restarted = Controller(CLUSTER_ID, strict.config, uuid4, strict.image)
    assert restarted.bootstrap().records == [minimum_record("", "2")]


def test_min_insync_replicas_of_all_brokers_changed_forgets_eligible_replicas_of_topics_that_go_by_it(
    strict: Conversation,
) -> None:
    """The same change once more: a topic that says nothing itself goes by what the cluster is told."""
    strict.create(creatable("own", assignments={0: (0, 1, 2)}, configs={"min.insync.replicas": "2"}))
    gone(strict, 0, 1)
    decision = strict.say(alteration("min.insync.replicas", "1", name="", resource_type=4))
    assert decision.records == [
        minimum_record("", "1"),
        PartitionChangeRecord(partition_id=0, topic_id=strict.topic_id(), eligible_leader_replicas=()),
    ]
    assert strict.partition(name="own").elr
    gone(strict, 2)
    assert state(strict) == leads(None, elr=(2,), last_known=(2,))
    # What the cluster was told outlives a restart with other properties.
    other = BrokerConfig.from_mapping({"min.insync.replicas": "3"})
    restarted = Controller(CLUSTER_ID, other, uuid4, strict.image)
    assert restarted.bootstrap().records == [minimum_record(str(CONTROLLER_ID), "3")]


def test_min_insync_replicas_of_all_brokers_stays_while_there_are_eligible_replicas(
    strict: Conversation,
) -> None:
    """Kafka refuses to take it away, so that the minimum is one that was seen to be set."""
    strict.say(alteration("min.insync.replicas", "1", name="", resource_type=4))
    decision = strict.say(alteration("min.insync.replicas", None, name="", resource_type=4))
    assert decision.records == []
    assert decision.reply.responses[0].error_code is ErrorCode.invalid_config


def test_minimum_that_an_earlier_version_noted_for_all_brokers_is_none_that_the_cluster_was_told(
    strict: Conversation,
) -> None:
    """Else the properties of the application would say nothing any more, ever."""
    old = [minimum_record(str(CONTROLLER_ID), None), minimum_record("", "2")]
    strict.take(ControllerResult(old, None))
    gone(strict, 0, 1)
    smaller = BrokerConfig.from_mapping({"min.insync.replicas": "1"})
    restarted = Controller(CLUSTER_ID, smaller, uuid4, strict.image)
    assert restarted.bootstrap().records == [
        minimum_record(str(CONTROLLER_ID), "1"),
        minimum_record("", "1"),
        PartitionChangeRecord(partition_id=0, topic_id=strict.topic_id(), eligible_leader_replicas=()),
    ]


def test_unclean_election_allowed_for_all_brokers_lets_whoever_is_there_lead(strict: Conversation) -> None:
    """The operator's last resort, without a restart of the application."""
    gone(strict, 0, 1, 2)
    back(strict, 0, clean=False)
    strict.say(alteration("unclean.leader.election.enable", "true", name="", resource_type=4))
    assert strict.partition().leader is None
    for _ in range(301):
        strict.heartbeat(0)
        strict.tick(1000)
    assert state(strict) == leads(0, (0,), recovering=True)


def test_unclean_election_waits_for_eligible_replicas_unless_topic_allows_it() -> None:
    """Whoever comes first leads where old records are better than none, and only there."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    allowed = {"unclean.leader.election.enable": "true"}
    conversation.create(
        creatable("t", assignments={0: (0, 1, 2)}),
        creatable("u", assignments={0: (0, 1, 2)}, configs=allowed),
    )
    gone(conversation, 0, 1, 2)
    back(conversation, 0, clean=False)
    assert state(conversation) == leads(None, elr=(1, 2), last_known=(2, 1))
    unclean = conversation.partition(name="u")
    assert (unclean.leader, unclean.isr, unclean.elr) == (0, (0,), ())
    assert unclean.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_leaderless_partition_without_the_feature_keeps_its_last_member() -> None:
    """Without KIP-966 the ISR never becomes empty."""
    conversation = Conversation().start(0)
    off = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    conversation.take(ControllerResult([off], None))
    conversation.create(creatable("t", assignments={0: (0,)}))
    assert gone(conversation, 0).records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=conversation.topic_id(), leader=NO_LEADER
    )
    assert conversation.partition().isr == (0,)


def test_topic_that_allows_unclean_elections_later_gets_a_leader_at_the_next_look(
    strict: Conversation,
) -> None:
    """Nothing else happens to a partition that waits, so somebody must look at it."""
    gone(strict, 0, 1, 2)
    back(strict, 0, clean=False)
    strict.say(alteration("unclean.leader.election.enable", "true"))
    assert strict.partition().leader is None
    for _ in range(301):
        strict.heartbeat(0)
        strict.tick(1000)
    assert state(strict) == leads(0, (0,), recovering=True)


def test_each_of_thousands_of_partitions_of_a_dead_broker_takes_few_calls() -> None:
    """They are all silent until driver and brokers are through; benchmarks/elections.py has the whole way."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    assignments = {number: (0, 1, 2) if number % 2 else (0, 2, 1) for number in range(4_000)}
    conversation.create(creatable("t", assignments=assignments))
    before = conversation.image
    with counted_calls() as calls:
        batches = [gone(conversation, 0).records]
        while not conversation.controller.is_settled:
            batches.append(conversation.take(conversation.controller.tick(conversation.now_ms)).records)
        image = before
        for batch in batches:
            # The brokers' part.
            values = [SimpleRecord(value=encode_record(record)) for record in batch]
            data = build_batch(values, base_offset=image.end_offset, leader_epoch=1)
            header = read_header(data)
            records = [decode_record(record.value or b"") for record in read_records(data, header)]
            image, _ = replay_records(image, records, header.last_offset, 1)
    assert calls.value < 200 * len(assignments)
    assert image == conversation.image
    assert {partition.leader for partition in image.topics.by_name["t"].partitions.values()} == {1, 2}


def test_unclean_election_takes_no_replica_that_is_being_added_unless_asked_for() -> None:
    """Its copy has hardly begun, and as a leader it would complete the move: the original is deleted."""
    conversation = Conversation(min_insync_replicas="1", unclean_leader_election_enable="true").start(0, 1)
    conversation.create(creatable("t", assignments={0: (0,)}))
    moved = ReassignablePartition(partition_index=0, replicas=(1,))
    topics = (ReassignableTopic(name="t", partitions=(moved,)),)
    conversation.say(AlterPartitionReassignmentsRequest(timeout=timedelta(seconds=1), topics=topics))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    conversation.tick(1_000)
    assert (conversation.partition().leader, conversation.partition().replicas) == (None, (1, 0))
    elect(conversation, UNCLEAN, 0)
    assert conversation.partition().leader == 1
