"""A broker that jumps over a part of the log must do what it would have done record by record."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given

from sparklog.executor.metadata.machine.metadata_loader import difference
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from sparklog.node.metadata.schemas import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    QuotaEntityData,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from sparklog.node.metadata_log.machine.snapshot_records import (
    image_of_snapshot,
    snapshot_id_of,
    snapshot_records,
)
from tests.unit.sparklog.node.metadata.images import image_with_partitions, images
from tests.unit.sparklog.node.metadata.test_image import applied, image_of, partition, register

FLIGHTS = UUID(int=100)


@given(images())
def test_difference_from_nothing_names_everything_and_from_itself_nothing(image: MetadataImage) -> None:
    """A copy of an image that went through a snapshot is the same to whoever acts on it."""
    everything = difference(EMPTY_IMAGE, image)
    assert everything.created_topics == everything.changed_topics.keys() == image.topics.by_id.keys()
    assert everything.changed_brokers == image.brokers.keys()
    copy = image_of_snapshot(snapshot_id_of(image), snapshot_records(image))
    assert difference(image, copy) == MetadataDelta()
    assert difference(image, EMPTY_IMAGE).deleted_topics.keys() == image.topics.by_id.keys()


def test_difference_is_the_delta_of_the_records_in_between() -> None:
    """Created, changed and deleted things are told apart as a replay tells them."""
    before = image_of(
        register(1),
        register(2),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="old", name="a", value="1"),
        TopicRecord(name="old", topic_id=UUID(int=1)),
        partition(UUID(int=1), 0),
        TopicRecord(name="flights", topic_id=FLIGHTS),
        partition(FLIGHTS, 0),
        partition(FLIGHTS, 1),
    )
    after, delta = applied(
        RemoveTopicRecord(topic_id=UUID(int=1)),
        TopicRecord(name="old", topic_id=UUID(int=3)),
        partition(UUID(int=3), 0),
        PartitionChangeRecord(partition_id=1, topic_id=FLIGHTS, isr=(1,)),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="a", value="1"),
        FeatureLevelRecord(name="group.version", feature_level=1),
        ClientQuotaRecord(
            entity=(QuotaEntityData(entity_type="user", entity_name=None),),
            key="producer_byte_rate",
            value=1.0,
        ),
        AccessControlEntryRecord(
            id=UUID(int=9),
            resource_type=2,
            resource_name="flights",
            pattern_type=3,
            principal="User:ann",
            host="*",
            operation=4,
            permission_type=3,
        ),
        image=before,
    )
    assert difference(before, after) == delta
    assert difference(before, after).changed_topics == {UUID(int=3): {0}, FLIGHTS: {1}}


def test_difference_in_offset_alone_is_empty() -> None:
    """Control records and producer ids concern nobody who holds replicas."""
    image = image_with_partitions(3)
    assert difference(image, replace(image, offset=9, next_producer_id=1000)) == MetadataDelta()
