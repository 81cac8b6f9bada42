"""Changes of very many topics: decided part by part, answered as one."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.alter_partition.v3 import request as alter_partition
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.assign_replicas_to_dirs.v0 import request as assign
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest

from sparklog.driver.controller.machine.part_sizes import by_partitions
from sparklog.driver.controller.machine.parts import joined, parts_of
from sparklog.driver.controller.machine.requests.create_topics import too_many_partitions
from sparklog.node.apis.parts import TOPICS_PER_PART, Parts
from sparklog.node.apis.table import ROWS
from sparklog.node.apis.topics import CREATE_TOPICS
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of, registration

NAMES = [f"topic-{number}" for number in range(3 * TOPICS_PER_PART - 10)]

PARTITIONS = 1_000


def division_of(request: Any) -> Parts:
    """Return how the row of a request's API divides it."""
    division = ROWS[request.__api_key__].parts
    assert division is not None
    return division


def create_topics(names: list[str]) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=tuple(creatable(name) for name in names))


def test_parts_of_many_topics_answer_together_what_the_whole_request_would() -> None:
    """A client must not see that its request was divided."""
    wanted = [*NAMES[:70], "bad name", *NAMES[70:], *NAMES[5:7]]
    answers = []
    for parts in ([create_topics(wanted)], in_one_go(parts_of(create_topics(wanted), CREATE_TOPICS.parts))):
        conversation = Conversation()
        conversation.start(0, 1, 2)
        replies = [conversation.say(part).reply for part in parts]
        answers.append(in_one_go(joined(division_of(create_topics(wanted)), replies)))
    whole, divided = (
        [(topic.name, topic.error_code, topic.num_partitions) for topic in answer.topics]
        for answer in answers
    )
    assert len(in_one_go(parts_of(create_topics(wanted), CREATE_TOPICS.parts))) == 3
    assert divided == whole
    assert [name for name, error_code, _ in divided if error_code is ErrorCode.invalid_request] == NAMES[5:7]


def test_parts_of_a_small_request_are_the_request() -> None:
    """Most requests are decided as one, and committed in one batch."""
    request = create_topics(NAMES[:TOPICS_PER_PART])
    assert in_one_go(parts_of(request, division_of(request))) == [request]


def test_parts_keep_together_what_names_the_same_topic() -> None:
    """Named twice is an error for both, which a part that has one of them could not see."""
    again = DeleteTopicState(name="again", topic_id=None)
    others = tuple(DeleteTopicState(name=name, topic_id=None) for name in NAMES)
    request = DeleteTopicsRequest(topics=(again, *others, again), timeout=None)
    parts = in_one_go(parts_of(request, division_of(request)))
    assert [part.topics.count(again) for part in parts] == [2, 0, 0]


def test_topics_of_many_partitions_are_created_extended_and_deleted_in_parts() -> None:
    """A hundred topics of a hundred partitions held the loop, and every broker's lease, for 0.15 s."""
    conversation = Conversation().start(0, 1, 2)
    names = NAMES[:20]
    sizes: list[list[int]] = []
    for request in (
        CreateTopicsRequest(topics=tuple(creatable(name, 100, 3) for name in names)),
        CreatePartitionsRequest(
            topics=tuple(CreatePartitionsTopic(name=name, count=160, assignments=None) for name in names),
            timeout=timedelta(seconds=1),
            validate_only=False,
        ),
        DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in names), timeout=None
        ),
    ):
        division = by_partitions(division_of(request), conversation.image, conversation.config)
        before = conversation.image.topics.partition_count
        sizes.append([])
        for part in in_one_go(parts_of(request, division)):
            conversation.say(part)
            after = conversation.image.topics.partition_count
            sizes[-1].append(after - before)
            before = after
    assert sizes == [[300] * 6 + [200], [300] * 4, [-160] * 20]


def test_topics_of_few_partitions_are_created_as_many_at_a_time_as_before() -> None:
    """A part of each of the cluster's default numbers would be as many batches as topics."""
    conversation = Conversation(num_partitions="2").start(0, 1, 2)
    request = create_topics(NAMES)
    division = by_partitions(division_of(request), conversation.image, conversation.config)
    parts = in_one_go(parts_of(request, division))
    assert [len(part.topics) for part in parts] == [TOPICS_PER_PART, TOPICS_PER_PART, len(NAMES) - 300]


@pytest.fixture
def many() -> Conversation:
    """A topic of so many partitions that a change of all takes four parts; brokers 1 and 2 follow."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1, 2)
    conversation.create(creatable("t", assignments=dict.fromkeys(range(PARTITIONS), (0, 1, 2))))
    return conversation


def said_in_parts(conversation: Conversation, request: Any) -> tuple[list[int], Any]:
    """Have a request decided as the shell does; return the sizes of the decisions, and the reply."""
    request = conversation.controller.in_full(request)
    decisions = [conversation.say(part) for part in in_one_go(parts_of(request, division_of(request)))]
    reply = in_one_go(joined(division_of(request), [decision.reply for decision in decisions]))
    return [len(decision.records) for decision in decisions], reply


def proposal(conversation: Conversation, isr: tuple[int, ...]) -> AlterPartitionRequest:
    """Return what the leader of all partitions proposes for each."""
    states = tuple(BrokerState(broker_id=each, broker_epoch=conversation.epoch(each)) for each in isr)
    leader = conversation.partition().leader
    assert leader is not None
    return AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=conversation.epoch(leader),
        topics=(
            alter_partition.TopicData(
                topic_id=conversation.topic_id(),
                partitions=tuple(
                    alter_partition.PartitionData(
                        partition_index=number,
                        leader_epoch=conversation.partition(number).leader_epoch,
                        partition_epoch=conversation.partition(number).partition_epoch,
                        leader_recovery_state=0,
                        new_isr_with_epochs=states,
                    )
                    for number in range(PARTITIONS)
                ),
            ),
        ),
    )


def test_isr_proposals_by_the_thousand_are_decided_in_parts(many: Conversation) -> None:
    """A broker that is back joins thousands of ISRs at once; its lease must not wait for all of them."""
    sizes, reply = said_in_parts(many, proposal(many, (0, 1)))
    assert sizes == [300, 300, 300, 100]
    answers = [partition for topic in reply.topics for partition in topic.partitions]
    assert [answer.partition_index for answer in answers] == list(range(PARTITIONS))
    assert {(answer.error_code, answer.isr) for answer in answers} == {(ErrorCode.none, (0, 1))}


def test_isr_proposals_of_a_broker_that_is_replaced_between_two_parts_are_refused(many: Conversation) -> None:
    """What was decided before stands; the broker that asked is told that it is none any more."""
    request = proposal(many, (0, 1))
    first, *others = in_one_go(parts_of(request, division_of(request)))
    replies = [many.say(first).reply]
    many.say(registration(0, incarnation=2))
    replies += [many.say(part).reply for part in others]
    assert in_one_go(joined(division_of(request), replies)).error_code is ErrorCode.stale_broker_epoch


def test_leaders_of_all_partitions_are_elected_in_parts(many: Conversation) -> None:
    """One request of an administrator may concern every partition there is."""
    many.take(many.controller.broker_gone(0, many.epoch(0)))
    many.tick()
    many.say(registration(0, incarnation=2))
    many.heartbeat(0)
    said_in_parts(many, proposal(many, (0, 1, 2)))
    everything: Any = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout=None)
    sizes, reply = said_in_parts(many, everything)
    assert sizes == [300, 300, 300, 100]
    results = [result for topic in reply.replica_election_results for result in topic.partition_result]
    assert [result.partition_id for result in results] == list(range(PARTITIONS))
    assert {result.error_code for result in results} == {ErrorCode.none}
    assert {many.partition(number).leader for number in range(PARTITIONS)} == {0}


def test_replicas_that_are_assigned_to_a_directory_by_the_thousand_are_in_parts(many: Conversation) -> None:
    """A broker that makes its replicas anew in another directory tells of all of them."""
    directory_id = UUID(int=7000)
    many.say(registration(0, directories=(directory_of(0), directory_id)))
    topics = tuple(
        assign.TopicData(
            topic_id=many.topic_id(),
            partitions=tuple(assign.PartitionData(partition_index=number) for number in numbers),
        )
        for numbers in (range(250), range(250, PARTITIONS))
    )
    request = assign.AssignReplicasToDirsRequest(
        broker_id=0,
        broker_epoch=many.epoch(0),
        directories=(assign.DirectoryData(id_=directory_id, topics=topics),),
    )
    sizes, reply = said_in_parts(many, request)
    assert sum(sizes) == PARTITIONS
    assert max(sizes) <= 300
    answers = [each for one in reply.directories for topic in one.topics for each in topic.partitions]
    assert [answer.partition_index for answer in answers] == list(range(PARTITIONS))
    assert {many.partition(number).directory_of(0) for number in range(PARTITIONS)} == {directory_id}


def test_parts_beyond_the_partitions_of_one_request_are_refused() -> None:
    """Two megabytes could otherwise ask for a thousand million partitions."""
    reply = CREATE_TOPICS.refused(create_topics(["a", "b"]), too_many_partitions())
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("a", ErrorCode.policy_violation),
        ("b", ErrorCode.policy_violation),
    ]


def test_partitions_of_one_topic_are_divided_in_steps() -> None:
    """A topic of a million partitions is divided while others are answered."""
    pieces = 40
    wanted = ReassignableTopic(
        name="t",
        partitions=tuple(
            ReassignablePartition(partition_index=number, replicas=(0,))
            for number in range(pieces * TOPICS_PER_PART)
        ),
    )
    request = AlterPartitionReassignmentsRequest(timeout=timedelta(seconds=1), topics=(wanted,))
    # Each piece is cut, and then put into a part.
    assert sum(1 for _ in parts_of(request, division_of(request))) >= 2 * pieces
