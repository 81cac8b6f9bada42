"""What a broker's new state changes of its partitions is decided in parts, and never on half the truth."""

from dataclasses import replace
from typing import Any

import pytest

from sparklog.driver.controller.machine.controller import PARTITIONS_PER_DECISION
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.recent_leaders import REST_MS
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import FeatureLevelRecord, PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import (
    Conversation,
    creatable,
    directory_of,
    heartbeat,
    registration,
)
from tests.unit.driver.controller.machine.test_topics import delete

PARTITIONS, PART = 7, 3


@pytest.fixture
def conversation() -> Conversation:
    """Broker 0 leads everything, and three partitions are changed at a time."""
    conversation = Conversation(partitions_per_decision=PART, min_insync_replicas="2")
    conversation.start(0, 1, 2)
    conversation.create(creatable("t", assignments=dict.fromkeys(range(PARTITIONS), (0, 1, 2))))
    return conversation


def gone(conversation: Conversation, broker_id: int) -> ControllerResult:
    """Let a broker's process end; return what is decided at once."""
    epoch = conversation.epoch(broker_id)
    return conversation.take(conversation.controller.broker_gone(broker_id, epoch))


def partitions(conversation: Conversation) -> list[PartitionRegistration]:
    return list(conversation.image.topics.by_name["t"].partitions.values())


def count_in_sync(conversation: Conversation, broker_id: int) -> int:
    return sum(broker_id in partition.isr for partition in partitions(conversation))


def next_decision(conversation: Conversation) -> ControllerResult:
    """Let the controller go on with what nobody asks for."""
    return conversation.take(conversation.controller.tick(conversation.now_ms))


def test_dead_brokers_partitions_change_a_part_at_a_time_until_all_have_other_leaders(
    conversation: Conversation,
) -> None:
    """One decision about all of them would hold the loop, and so every broker's lease."""
    changed = [sum(isinstance(each, PartitionChangeRecord) for each in gone(conversation, 0).records)]
    assert conversation.image.brokers[0].fenced, "nobody elects it from the first part on"
    while not conversation.controller.is_settled:
        changed.append(len(next_decision(conversation).records))
    assert changed == [3, 3, 1]
    assert {(partition.leader, partition.isr) for partition in partitions(conversation)} == {(1, (1, 2))}
    assert conversation.tick() == []


def test_driver_that_takes_over_goes_on_where_the_one_before_it_stopped(conversation: Conversation) -> None:
    """What is left to do stands in the image: partitions of a dead broker must not wait for its return."""
    gone(conversation, 0)
    assert count_in_sync(conversation, 0) == PARTITIONS - PART
    conversation.take_over()
    conversation.tick()
    assert {(partition.leader, partition.isr) for partition in partitions(conversation)} == {(1, (1, 2))}


def test_driver_that_takes_over_elects_for_who_was_unfenced_before_it(conversation: Conversation) -> None:
    """The elections for a broker that is back were interrupted; nothing else would make them go on."""
    for broker_id in (2, 1, 0):
        gone(conversation, broker_id)
        conversation.tick()
    assert {partition.leader for partition in partitions(conversation)} == {None}
    conversation.say(registration(0, incarnation=2, previous_broker_epoch=conversation.epoch(0)))
    conversation.heartbeat(0)
    assert sum(partition.leader == 0 for partition in partitions(conversation)) == PART
    conversation.take_over()
    conversation.tick()
    assert {partition.leader for partition in partitions(conversation)} == {0}


def test_brokers_fenced_one_after_the_other_leave_what_is_left_together(conversation: Conversation) -> None:
    """Neither was out of sync before the other where both were still in the ISR: both may lead again."""
    conversation.propose(0, (0, 2))
    conversation.propose(0, (0, 1, 2))  # Of broker 1's partitions the last now, of broker 0's the first.
    gone(conversation, 0)
    gone(conversation, 1)
    conversation.tick()
    assert {partition.isr for partition in partitions(conversation)} == {(2,)}
    eligible = [partition.elr for partition in partitions(conversation)]
    assert eligible == [(1,)] * PART + [(0, 1)] * (PARTITIONS - PART)


@pytest.mark.parametrize("taken_over", [False, True])
def test_fenced_broker_is_unfenced_only_when_it_has_left_every_isr(
    conversation: Conversation, taken_over: bool
) -> None:
    """It would lead on in epochs that others may count as over."""
    gone(conversation, 0)
    assert conversation.heartbeat(0).reply.is_fenced
    if taken_over:
        conversation.take_over()
        assert conversation.heartbeat(0).reply.is_fenced
    conversation.tick()
    assert not conversation.heartbeat(0).reply.is_fenced
    assert count_in_sync(conversation, 0) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_new_incarnation_registers_only_when_the_one_before_has_left_every_isr(
    conversation: Conversation, clean: bool
) -> None:
    """What it had is not what it has: by never having left an ISR it would be elected for it."""
    earlier = conversation.epoch(0)
    request = registration(0, incarnation=2, previous_broker_epoch=earlier if clean else -1)
    parts = []
    while (decision := conversation.take(conversation.controller.handle(request, 0))).is_first_part:
        assert conversation.epoch(0) == earlier
        assert conversation.image.brokers[0].fenced
        assert not conversation.heartbeat(1).is_first_part, "others have their turn in between"
        parts.append(sum(isinstance(each, PartitionChangeRecord) for each in decision.records))
    assert parts == [3, 3]
    assert decision.reply.error_code is ErrorCode.none
    assert conversation.epoch(0) == decision.reply.broker_epoch != earlier
    assert count_in_sync(conversation, 0) == 0
    assert {partition.elr for partition in partitions(conversation)} == {()}
    assert {partition.leader for partition in partitions(conversation)} == {1}


def test_new_incarnation_after_a_crash_is_eligible_for_nothing_it_was_left_eligible_for(
    conversation: Conversation,
) -> None:
    """It was fenced while alone, and so eligible; then it turns out that its machine had crashed."""
    for broker_id in (1, 2, 0):
        gone(conversation, broker_id)
        conversation.tick()
    assert {0 in partition.elr for partition in partitions(conversation)} == {True}
    conversation.say(registration(0, incarnation=2))
    assert {0 in partition.elr for partition in partitions(conversation)} == {False}


def test_broker_in_controlled_shutdown_may_go_when_all_know_of_the_last_part(
    conversation: Conversation,
) -> None:
    """Its followers must know their new leaders before it ends."""
    conversation.heartbeat(0, want_shut_down=True)
    first_end = conversation.image.offset
    for broker_id in (1, 2):
        conversation.heartbeat(broker_id)
    assert not conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down
    conversation.tick()
    assert count_in_sync(conversation, 0) == 0
    for broker_id in (1, 2):
        conversation.heartbeat(broker_id, current_metadata_offset=first_end)
    assert not conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down
    for broker_id in (1, 2):
        conversation.heartbeat(broker_id)
    assert conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down


def test_broker_in_controlled_shutdown_waits_for_what_another_decision_took_from_it() -> None:
    """Between two of its parts another broker dies; who leads instead must be known before it goes, too."""
    conversation = Conversation(partitions_per_decision=1).start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 2)}))
    conversation.create(creatable("u", assignments={0: (0, 1, 2)}))
    conversation.heartbeat(0, want_shut_down=True)
    conversation.heartbeat(2)
    gone(conversation, 1)
    assert [conversation.partition(name=name).leader for name in ("t", "u")] == [2, 2]
    assert conversation.tick() == []
    assert not conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down
    conversation.heartbeat(2)
    assert conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down


def test_broker_in_controlled_shutdown_waits_for_what_the_driver_before_took_from_it() -> None:
    """A new driver has not seen the leaders move, and others may not have heard of it."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    before = conversation.image.offset
    conversation.heartbeat(0, want_shut_down=True)
    conversation.take_over()
    conversation.heartbeat(1, current_metadata_offset=before)
    assert not conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down
    conversation.heartbeat(1)
    assert conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down


def test_dead_brokers_partitions_have_new_leaders_before_any_is_led_by_its_preferred_one_again() -> None:
    """Nobody produces to a partition whose leader is dead; one that is led by another replica can wait."""
    conversation = led_by_another_than_preferred()
    rest(conversation)
    conversation.now_ms += 10_000
    for broker_id in (0, 1, 2):
        conversation.heartbeat(broker_id)
    balanced = next_decision(conversation)
    assert [each.leader for each in balanced.records] == [0] * PART
    gone(conversation, 2)
    while not conversation.controller.is_settled:
        leaders = [each.leader for each in next_decision(conversation).records]
        moved = {partition.leader for partition in conversation.image.topics.by_name["u"].partitions.values()}
        assert moved == {1} or leaders == [1] * PART
    assert {partition.leader for partition in partitions(conversation)} == {0}


def test_partitions_whose_leaders_have_just_changed_are_not_led_by_preferred_ones_at_once() -> None:
    """Two changes within the attempts of a producer silence a partition for seconds instead of a tenth."""
    conversation = led_by_another_than_preferred()
    conversation.now_ms += 10_000
    for broker_id in (0, 1, 2):
        conversation.heartbeat(broker_id)
    assert next_decision(conversation).records == []
    rest(conversation)
    conversation.now_ms += 10_000
    for broker_id in (0, 1, 2):
        conversation.heartbeat(broker_id)
    assert [each.leader for each in next_decision(conversation).records] == [0] * PART


def led_by_another_than_preferred() -> Conversation:
    """Return a cluster in which broker 0 has come back; its partitions have just got another leader."""
    conversation = Conversation(partitions_per_decision=PART, leader_imbalance_check_interval_seconds="10")
    conversation.start(0, 1, 2)
    conversation.create(creatable("t", assignments=dict.fromkeys(range(PARTITIONS), (0, 1))))
    conversation.create(creatable("u", assignments=dict.fromkeys(range(PARTITIONS), (2, 1))))
    gone(conversation, 0)
    conversation.tick()
    conversation.start(0)
    for number, partition in enumerate(partitions(conversation)):
        conversation.propose(
            1,
            (1, 0),
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
        )
    return conversation


def rest(conversation: Conversation) -> None:
    """Let all leaders rest."""
    for _ in range(2):
        conversation.now_ms += REST_MS
        conversation.tick()


def directory_fails(conversation: Conversation) -> ControllerResult:
    """The directory of broker 0 fails that has its replicas, and another is left; return what is decided."""
    conversation.say(registration(0, directories=(directory_of(0), directory_of(8))))
    beat = heartbeat(0, conversation.epoch(0), conversation.image.offset or 0)
    beat = replace(beat, offline_log_dirs=(directory_of(0),))
    return conversation.take(conversation.controller.handle(beat, conversation.now_ms))


def test_failed_directorys_replicas_leave_a_part_at_a_time_and_none_is_elected_there(
    conversation: Conversation,
) -> None:
    """The first batch says what has failed: in between broker 0 is active, and leads other partitions on."""
    sizes = [len(directory_fails(conversation).records)]
    assert conversation.image.brokers[0].log_directories == (directory_of(8),)
    gone(conversation, 1)
    while not conversation.controller.is_settled:
        sizes.append(len(next_decision(conversation).records))
    assert sizes[0] == PART + 1
    assert max(sizes) <= PART + 1
    assert {(each.leader, each.isr, each.elr) for each in partitions(conversation)} == {(2, (2,), (1,))}


def test_failed_directorys_replicas_leave_though_nothing_else_happens(conversation: Conversation) -> None:
    """Replaying the batch that begins with them notes the others."""
    directory_fails(conversation)
    conversation.tick()
    assert {(each.leader, each.isr) for each in partitions(conversation)} == {(1, (1, 2))}


def test_failed_directory_that_another_driver_finds_is_settled_by_it(conversation: Conversation) -> None:
    """Else the broker would be in those ISRs, and acks=all would wait for it, as long as it lives."""
    directory_fails(conversation)
    conversation.take_over()
    conversation.tick()
    assert {(each.leader, each.isr) for each in partitions(conversation)} == {(1, (1, 2))}


def test_proposal_meanwhile_keeps_no_replica_in_a_failed_directory(
    conversation: Conversation,
) -> None:
    """Its leader does not know yet; taken in, the replica would be said to lie in the one that is left."""
    conversation.create(creatable("u", assignments={0: (1, 0, 2)}))
    directory_fails(conversation)
    partition = conversation.partition(name="u")
    assert partition.isr == (1, 0, 2), "its turn has not come"
    about: dict[str, Any] = {
        "topic_id": conversation.topic_id("u"),
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
    }
    refused = conversation.propose(1, (1, 0), **about).reply
    assert refused.topics[0].partitions[0].error_code is ErrorCode.ineligible_replica
    taken = conversation.propose(1, (1,), **about).reply
    assert taken.topics[0].partitions[0].error_code is ErrorCode.none
    after = conversation.partition(name="u")
    assert (after.isr, after.elr, after.directory_of(0)) == ((1,), (2,), directory_of(0))


@pytest.mark.parametrize(("feature_level", "isr", "elr"), [(0, (1,), ()), (1, (), (1,))])
def test_last_one_with_a_log_is_waited_for_and_not_a_failed_directory(
    feature_level: int, isr: tuple[int, ...], elr: tuple[int, ...]
) -> None:
    """With eligible leader replicas (KIP-966) and without: what the other one has is all there is."""
    conversation = Conversation(partitions_per_decision=1, min_insync_replicas="2").start(0, 1, 2)
    feature = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=feature_level)
    conversation.take(ControllerResult([feature], None))
    conversation.create(creatable("t", assignments={0: (0, 2), 1: (0, 1), 2: (0, 1)}))
    directory_fails(conversation)
    gone(conversation, 1)
    conversation.tick()
    assert {(each.leader, each.isr, each.elr) for each in partitions(conversation)[1:]} == {(None, isr, elr)}


def test_broker_without_a_directory_left_loses_its_replicas_a_part_at_a_time(
    conversation: Conversation,
) -> None:
    """It is fenced at once, and eligible to lead nothing afterwards: whatever it had is gone."""
    beat = replace(heartbeat(0, conversation.epoch(0), 0), offline_log_dirs=(directory_of(0),))
    sizes: list[int] = []
    decision: ControllerResult | None = None
    while decision is None or decision.is_first_part:
        decision = conversation.take(conversation.controller.handle(beat, conversation.now_ms))
        sizes.append(len(decision.records))
        assert conversation.image.brokers[0].fenced
    assert sizes == [PART + 1, PART, 1]
    assert (decision.reply.error_code, decision.reply.is_fenced) == (ErrorCode.none, True)
    assert {(each.leader, each.isr, each.elr) for each in partitions(conversation)} == {(1, (1, 2), ())}
    assert conversation.tick() == []


def test_topic_that_is_deleted_meanwhile_is_left_out(conversation: Conversation) -> None:
    """What was noted may be gone when its turn comes."""
    gone(conversation, 0)
    delete(conversation, ("t", None))
    assert conversation.tick() == []


def test_decision_about_ten_thousand_partitions_changes_some_hundreds() -> None:
    """About 17 us a partition: no decision may hold the loop for more than 10 ms."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    assignments = dict.fromkeys(range(10_000), (0, 1, 2))
    conversation.create(creatable("t", assignments=assignments))
    sizes = [len(gone(conversation, 0).records)]
    while not conversation.controller.is_settled:
        sizes.append(len(next_decision(conversation).records))
    assert sum(sizes) == 10_000 + 1
    assert max(sizes) <= PARTITIONS_PER_DECISION + 1 <= 500
