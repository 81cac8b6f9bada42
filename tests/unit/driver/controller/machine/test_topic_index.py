"""The index over all topics: it says what the image says, and spares decisions a look at everything."""

import random
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from sparklog.driver.controller.machine.requests.create_topics import LOGGED_TOPICS
from sparklog.driver.controller.machine.topic_index import TopicIndex
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import (
    NO_LEADER,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.protocol.errors import ErrorCode
from tests.counted_work import counted_calls
from tests.unit.driver.controller.conversation import Conversation, creatable

FEW, MANY = 10, 110
"""How many other topics there are."""


def what_it_says(index: TopicIndex) -> dict[str, object]:
    return {
        "led": +index.load.led,
        "held": +index.load.held,
        "leading": +index.leading,
        "in sync": {broker_id: set(keys) for broker_id, keys in index.in_sync.items() if keys},
        "eligible": {broker_id: set(keys) for broker_id, keys in index.eligible.items() if keys},
        "leaderless": set(index.leaderless),
        "led by another": set(index.led_by_another),
        "names": index.names,
    }


def some_records(image: MetadataImage, chance: random.Random) -> list[MetadataRecord]:
    """Return a batch that creates, changes and deletes topics, some of them twice."""
    topics = list(image.topics.by_id.values())
    records: list[MetadataRecord] = []
    deleted: set[UUID] = set()
    for _ in range(chance.randint(1, 4)):
        kind = chance.choice(("create", "delete", "change", "change", "extend"))
        if kind == "create":
            topic_id = UUID(int=chance.getrandbits(128))
            name = f"topic.{chance.getrandbits(64)}"
            records.append(TopicRecord(name=name, topic_id=topic_id))
            records += [a_partition(topic_id, number, chance) for number in range(chance.randint(1, 3))]
            if chance.random() < 0.2:
                records.append(RemoveTopicRecord(topic_id=topic_id))
            continue
        left = [topic for topic in topics if topic.topic_id not in deleted]
        if not left:
            continue
        topic = chance.choice(left)
        if kind == "delete":
            deleted.add(topic.topic_id)
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            if chance.random() < 0.5:
                # Again under its name.
                topic_id = UUID(int=chance.getrandbits(128))
                records.append(TopicRecord(name=topic.name, topic_id=topic_id))
                records.append(a_partition(topic_id, 0, chance))
                topics = [other for other in topics if other is not topic]
        elif kind == "extend":
            if all(getattr(record, "topic_id", None) != topic.topic_id for record in records):
                records.append(a_partition(topic.topic_id, len(topic.partitions), chance))
        else:
            number = chance.choice(list(topic.partitions))
            leader = chance.choice((NO_LEADER, 0, 1, 2))
            records.append(PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=leader))
    return records


def a_partition(topic_id: UUID, number: int, chance: random.Random) -> PartitionRecord:
    replicas = tuple(chance.sample(range(3), chance.randint(1, 3)))
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=(),
    )


@pytest.mark.parametrize("seed", range(20))
def test_index_that_followed_every_image_equals_one_made_from_the_last(seed: int) -> None:
    """What it says wrongly once it says for ever: a leader that is never counted out keeps a broker."""
    chance = random.Random(seed)
    image, index = EMPTY_IMAGE, TopicIndex(EMPTY_IMAGE)
    for _ in range(100):
        before = image
        image, delta = replay_records(before, some_records(before, chance), before.end_offset + 20, 1)
        index.changed(before, image, delta)
        assert what_it_says(index) == what_it_says(TopicIndex(image))


def a_cluster(topics: int) -> Conversation:
    conversation = Conversation().start(0, 1, 2)
    conversation.create(*(creatable(f"other-{number}", 1, 3) for number in range(topics)))
    return conversation


def create_a_topic(conversation: Conversation) -> None:
    (result,) = conversation.create(creatable("t", 1, 3)).reply.topics
    assert result.error_code is ErrorCode.none


def add_a_partition(conversation: Conversation) -> None:
    wanted = CreatePartitionsTopic(name="other-0", count=2, assignments=None)
    request = CreatePartitionsRequest(topics=(wanted,), timeout=timedelta(seconds=1), validate_only=False)
    (result,) = conversation.say(request).reply.results
    assert result.error_code is ErrorCode.none


def delete_a_topic(conversation: Conversation) -> None:
    wanted = DeleteTopicState(name="other-0", topic_id=None)
    request = DeleteTopicsRequest(topics=(wanted,), timeout=timedelta(seconds=1))
    (result,) = conversation.say(request).reply.responses
    assert result.error_code is ErrorCode.none


@pytest.mark.parametrize("decide", [create_a_topic, add_a_partition, delete_a_topic])
def test_decision_about_one_topic_looks_at_no_other(decide: Callable[[Conversation], None]) -> None:
    """Clients that create topics one by one must not pay for those there are."""
    counts = []
    for topics in (FEW, MANY):
        conversation = a_cluster(topics)
        with counted_calls() as calls:
            decide(conversation)
        counts.append(calls.value)
    assert counts[1] - counts[0] < (MANY - FEW) // 2


def test_heartbeats_of_a_broker_that_leaves_look_at_no_partition() -> None:
    """It beats twice a second until it leads nothing."""
    counts = []
    for topics in (FEW, MANY):
        conversation = a_cluster(topics)
        conversation.heartbeat(0, want_shut_down=True)
        assert conversation.image.brokers[0].in_controlled_shutdown
        with counted_calls() as calls:
            conversation.heartbeat(0, want_shut_down=True)
        counts.append(calls.value)
    assert counts[1] - counts[0] < (MANY - FEW) // 2


def test_ticks_of_a_cluster_that_is_well_look_at_no_partition() -> None:
    """Leaders are all where they belong: there is nothing to look at, every fifty milliseconds."""
    counts = []
    for topics in (FEW, MANY):
        conversation = a_cluster(topics)
        # The balancer has read the partitions once, some a tick.
        for _ in range(MANY):
            conversation.tick()
        for broker_id in range(3):
            conversation.heartbeat(broker_id)
        with counted_calls() as calls:
            assert conversation.tick() == []
            conversation.controller.log_questions(conversation.now_ms)
        counts.append(calls.value)
    assert counts[0] == counts[1]


def test_topics_that_are_created_together_are_logged_by_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ten thousand lines would take longer than the decision."""
    caplog.set_level("INFO", "sparklog.driver.controller")
    conversation = Conversation().start(0)
    names = [f"t-{uuid4()}" for _ in range(LOGGED_TOPICS + 1)]
    conversation.create(*(creatable(name, 1, 1) for name in names))
    assert [line for line in caplog.messages if "topic" in line.lower()] == [
        f"{LOGGED_TOPICS + 1} topics are created"
    ]
    caplog.clear()
    states = tuple(DeleteTopicState(name=name, topic_id=None) for name in names)
    conversation.say(DeleteTopicsRequest(topics=states, timeout=timedelta(seconds=1)))
    assert caplog.messages == [f"{LOGGED_TOPICS + 1} topics are deleted"]
