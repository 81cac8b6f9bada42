"""The hash over the topics of a group: when it is another one, the group is assigned anew."""

from dataclasses import replace
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.consumer.metadata_hash import TopicHashes, hash_topic
from sparklog.node.metadata.image import MetadataImage, TopicImage
from tests.builders import broker, image
from tests.unit.executor.coordinators.groups.consumer_conversation import PARTITION

TOPIC_ID = UUID(int=(0x0102030405060708 << 64) | 0x1112131415161718)
BROKERS = {1: broker(1, rack="r2"), 2: broker(2, rack="r1"), 3: broker(3)}


def topic(name: str, *replicas: tuple[int, ...], topic_id: UUID = TOPIC_ID) -> TopicImage:
    return TopicImage(
        name, topic_id, {number: replace(PARTITION, replicas=one) for number, one in enumerate(replicas)}
    )


def image_of(*topics: TopicImage) -> MetadataImage:
    return image(BROKERS.values(), topics)


def test_hash_of_a_topic_is_kafkas() -> None:
    """Found with the hash4j of Kafka 4.3.1, called as its computeTopicHash calls it."""
    assert hash_topic(topic("topic-ä", (1, 2, 3), ()), BROKERS) == 4342298320887918067


def test_hash_of_no_topic_is_zero() -> None:
    """As in the record of a group whose topics do not exist yet."""
    assert TopicHashes().of_group(["missing"], image_of()) == 0


def test_hash_of_a_group_does_not_depend_on_the_order_of_its_topics() -> None:
    hashes = TopicHashes()
    both = image_of(topic("a", (1,)), topic("b", (1,), topic_id=UUID(int=7)))

    assert hashes.of_group(["a", "b"], both) == hashes.of_group(["b", "a"], both)


def test_hash_of_a_group_changes_with_partitions_ids_and_racks() -> None:
    """Each of them is a reason to assign anew; who leads is none."""
    before = TopicHashes().of_group(["a"], image_of(topic("a", (1,))))
    led_by_another = TopicImage(
        "a", TOPIC_ID, {0: replace(PARTITION, replicas=(1,), leader=1, leader_epoch=5)}
    )

    assert TopicHashes().of_group(["a"], image_of(led_by_another)) == before
    for other in (
        topic("a", (1,), (1,)),
        topic("a", (1,), topic_id=UUID(int=9)),
        topic("a", (2,)),
    ):
        assert TopicHashes().of_group(["a"], image_of(other)) != before


def test_hash_is_made_again_when_the_topic_is_another_image() -> None:
    """What is kept of a topic must not outlive what it was made of."""
    hashes = TopicHashes()
    before = hashes.of_group(["a"], image_of(topic("a", (1,))))

    assert hashes.of_group(["a"], image_of(topic("a", (1,), (2,)))) != before
