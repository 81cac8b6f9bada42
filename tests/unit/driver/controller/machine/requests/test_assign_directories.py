"""Replicas in directories, failed directories, and replicas that lack what they acknowledged (KIP-858)."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.assign_replicas_to_dirs.v0.request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.node.metadata.schemas import DAMAGED_DIRECTORY, LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicIdPartition
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of, registration


def assign(conversation: Conversation, broker_id: int, directory: UUID, **changes: Any) -> ControllerResult:
    """Say that a broker's replica of partition 0 of topic `t` lies in a directory."""
    fields = {"broker_epoch": conversation.epoch(broker_id), "topic_id": conversation.topic_id()} | changes
    return conversation.say(
        AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=fields["broker_epoch"],
            directories=(
                DirectoryData(
                    id_=directory,
                    topics=(
                        TopicData(
                            topic_id=fields["topic_id"],
                            partitions=(PartitionData(partition_index=fields.get("number", 0)),),
                        ),
                    ),
                ),
            ),
        )
    )


def error_of(decision: ControllerResult) -> ErrorCode:
    """Return the answer for the one partition that was asked about."""
    error_code: ErrorCode = decision.reply.directories[0].topics[0].partitions[0].error_code
    return error_code


def three_replicas(min_isr: int = 2) -> Conversation:
    """A topic on three brokers, led by broker 0."""
    conversation = Conversation(min_insync_replicas=str(min_isr)).start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    return conversation


def reports_of(conversation: Conversation, broker_id: int) -> DirectoryReports:
    """What the broker has to tell goes straight to the controller."""
    reports = DirectoryReports(broker_id, lambda key, directory: assign(conversation, broker_id, directory))
    reports.own_directories = (directory_of(broker_id),)
    return reports


def test_lost_replica_leaves_isr_and_leadership_in_one_change() -> None:
    """Who has the records leads; between the two there is no moment without a leader."""
    conversation = three_replicas()
    decision = assign(conversation, 0, LOST_DIRECTORY)
    assert (len(decision.records), error_of(decision)) == (1, ErrorCode.none)
    partition = conversation.partition()
    assert (partition.leader, partition.isr, partition.elr) == (1, (1, 2), ())
    assert partition.directory_of(0) == LOST_DIRECTORY
    assert assign(conversation, 0, LOST_DIRECTORY).records == []


def test_damaged_replica_counts_again_only_after_the_isr_took_it_back() -> None:
    """The story of a replica that recovered shorter than it had been, from its restart to the ISR."""
    conversation = three_replicas()
    key = TopicIdPartition(conversation.topic_id(), 0)
    reports = reports_of(conversation, 0)
    reports.opened(key, directory_of(0), damaged=True)
    assert reports.undeclared == 1
    reports.image_changed(key, conversation.partition())
    assert conversation.partition().directory_of(0) == LOST_DIRECTORY
    reports.image_changed(key, conversation.partition())
    assert reports.undeclared == 0
    partition = conversation.partition()
    assert partition.directory_of(0) == directory_of(0), "said where it lies once it counts no more"
    assert (partition.leader, partition.isr) == (1, (1, 2))
    assert conversation.propose(1, (0, 1, 2)).records
    assert conversation.partition().isr == (0, 1, 2)


def test_damaged_replica_that_was_the_last_leader_does_not_lead_what_healthy_ones_have() -> None:
    """All brokers went; the one that led last comes back first, and shorter. The others have every record."""
    conversation = three_replicas()
    for broker_id in (1, 2, 0):
        conversation.take(conversation.controller.broker_gone(broker_id, conversation.epoch(broker_id)))
    partition = conversation.partition()
    assert (partition.leader, partition.isr, partition.elr) == (None, (), (0, 2))
    epoch = conversation.epoch(0)
    conversation.say(registration(0, incarnation=2, previous_broker_epoch=epoch))
    key = TopicIdPartition(conversation.topic_id(), 0)
    reports = reports_of(conversation, 0)
    reports.opened(key, directory_of(0), damaged=True)
    reports.image_changed(key, conversation.partition())
    reports.image_changed(key, conversation.partition())
    conversation.heartbeat(0)
    partition = conversation.partition()
    assert (partition.leader, partition.elr, partition.last_known_elr) == (None, (2,), (2,))
    conversation.say(registration(2, incarnation=2, previous_broker_epoch=conversation.epoch(2)))
    conversation.heartbeat(2)
    assert conversation.partition().leader == 2


@pytest.mark.parametrize("min_isr", [1, 2])
def test_report_of_damage_of_the_last_eligible_replica_is_refused(min_isr: int) -> None:
    """Its leader died before the report was committed: without it the partition would stay offline."""
    conversation = Conversation(min_insync_replicas=str(min_isr)).start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    key = TopicIdPartition(conversation.topic_id(), 0)
    before = conversation.partition()
    decision = assign(conversation, 1, DAMAGED_DIRECTORY)
    assert (decision.records, error_of(decision)) == ([], ErrorCode.eligible_leaders_not_available)
    assert (before.leader, before.isr, conversation.partition()) == (1, (1,), before)
    reports = reports_of(conversation, 1)
    reports.opened(key, directory_of(1), damaged=False)
    reports.found_damage(key)
    reports.kept_damage(key)
    reports.image_changed(key, before)
    assert (reports.undeclared, conversation.partition()) == (0, before)


def test_report_of_damage_of_a_follower_takes_it_out_of_the_isr_until_it_has_caught_up() -> None:
    """As for a lost log: the records of the leader take the place of the damaged ones."""
    conversation = three_replicas()
    key = TopicIdPartition(conversation.topic_id(), 0)
    reports = reports_of(conversation, 2)
    reports.opened(key, directory_of(2), damaged=False)
    reports.found_damage(key)
    reports.image_changed(key, conversation.partition())
    partition = conversation.partition()
    assert (partition.leader, partition.isr, partition.elr) == (0, (0, 1), ())
    assert partition.directory_of(2) == LOST_DIRECTORY
    reports.image_changed(key, partition)
    assert conversation.partition().directory_of(2) == directory_of(2)


def test_damaged_replica_without_others_leads_on() -> None:
    """With a replication factor of one nobody has more: waiting brings nothing back."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", assignments={0: (0,)}))
    key = TopicIdPartition(conversation.topic_id(), 0)
    reports = reports_of(conversation, 0)
    reports.opened(key, directory_of(0), damaged=True)
    reports.image_changed(key, conversation.partition())
    assert reports.undeclared == 0
    assert conversation.partition().leader == 0


def test_replica_on_a_new_disk_is_not_taken_for_the_one_that_counted() -> None:
    """While it counts, in the directory that is gone, nothing that lies elsewhere may lead."""
    conversation = three_replicas()
    key = TopicIdPartition(conversation.topic_id(), 0)
    reports = reports_of(conversation, 0)
    reports.own_directories = (UUID(int=777),)
    reports.opened(key, UUID(int=777), damaged=False)
    reports.image_changed(key, conversation.partition())
    assert conversation.partition().directory_of(0) == directory_of(0)


def test_replica_in_one_of_several_directories_is_told_of() -> None:
    """Without it, the controller would not know whose leader to move when one of them fails."""
    both = (UUID(int=901), UUID(int=902))
    conversation = Conversation(min_insync_replicas="1").start(1)
    conversation.say(registration(0, directories=both))
    conversation.heartbeat(0)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    assert conversation.partition().directory_of(0) == UNASSIGNED_DIRECTORY
    reports = reports_of(conversation, 0)
    reports.own_directories = both
    key = TopicIdPartition(conversation.topic_id(), 0)
    reports.opened(key, both[1], damaged=False)
    reports.image_changed(key, conversation.partition())
    assert conversation.partition().directory_of(0) == both[1]
    conversation.heartbeat(0, offline_log_dirs=(both[1],))
    partition = conversation.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert conversation.image.brokers[0].log_directories == (both[0],)
    assert not conversation.image.brokers[0].fenced


def test_broker_without_any_directory_is_fenced_and_eligible_nowhere() -> None:
    """What a failed disk had acknowledged may be gone: an election must not count on it."""
    conversation = three_replicas(min_isr=3)
    decision = conversation.heartbeat(0, offline_log_dirs=(directory_of(0),))
    assert decision.reply.is_fenced
    partition = conversation.partition()
    assert (partition.leader, partition.isr, partition.elr) == (1, (1, 2), ())


def test_assignment_of_what_is_not_there_is_refused_by_name() -> None:
    """A broker that is behind, or is another by now, changes nothing."""
    conversation = three_replicas()
    conversation.start(3)
    assert (
        error_of(assign(conversation, 0, LOST_DIRECTORY, topic_id=UUID(int=1))) is ErrorCode.unknown_topic_id
    )
    assert error_of(assign(conversation, 0, LOST_DIRECTORY, number=9)) is ErrorCode.unknown_topic_or_partition
    assert error_of(assign(conversation, 3, LOST_DIRECTORY)) is ErrorCode.not_leader_or_follower
    stale = assign(conversation, 0, LOST_DIRECTORY, broker_epoch=conversation.epoch(0) - 1)
    assert (stale.records, stale.reply.error_code) == ([], ErrorCode.stale_broker_epoch)
