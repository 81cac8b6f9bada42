"""What a snapshot holds is what the log up to it added up to, neither less nor more."""

from dataclasses import fields
from uuid import UUID

import pytest
from hypothesis import given

from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from sparklog.node.metadata.replay import MetadataReplayError, replay_records
from sparklog.node.metadata.schemas import (
    AccessControlEntryRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from sparklog.node.metadata_log.machine.snapshot_records import (
    image_of_snapshot,
    snapshot_id_of,
    snapshot_records,
)
from sparklog.protocol.types import SnapshotId
from tests.unit.sparklog.node.metadata.images import image_with_partitions, images


@given(images())
def test_snapshot_of_any_image_replays_to_an_equal_image(image: MetadataImage) -> None:
    """Who starts from a snapshot and who replays everything must act alike."""
    assert image_of_snapshot(snapshot_id_of(image), snapshot_records(image)) == image


def test_snapshot_says_everything_that_an_image_holds() -> None:
    """A field that an image gains and a snapshot does not write would be forgotten at every restart."""
    assert {field.name for field in fields(MetadataImage)} == {
        "offset",
        "leader_epoch",
        "features",
        "brokers",
        "topics",
        "configs",
        "client_quotas",
        "next_producer_id",
        "acls",
        "scram_credentials",
    }


def test_snapshot_of_equal_images_is_equal_whatever_order_they_came_in() -> None:
    """Two brokers that write a snapshot of the same offset write the same bytes."""
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name="a.version", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="x", name="a", value="1"),
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="b", value="2"),
        TopicRecord(name="y", topic_id=UUID(int=2)),
        TopicRecord(name="x", topic_id=UUID(int=1)),
        RegisterBrokerRecord(broker_id=1, incarnation_id=None, broker_epoch=1, end_points=(), rack=None),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
        *(
            AccessControlEntryRecord(
                id=UUID(int=acl_id),
                resource_type=2,
                resource_name="flights",
                pattern_type=3,
                principal="User:ann",
                host="*",
                operation=4,
                permission_type=3,
            )
            for acl_id in (2, 1)
        ),
    ]
    image, _ = replay_records(EMPTY_IMAGE, records, 7, 1)
    other, _ = replay_records(EMPTY_IMAGE, records[::-1], 7, 1)
    written = list(snapshot_records(image))
    assert written == list(snapshot_records(other))
    assert written[0] == FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert [type(record).__name__ for record in written[1:]] == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "TopicRecord",
        "TopicRecord",
        "ConfigRecord",
        "ConfigRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "AccessControlEntryRecord",
    ]


def test_snapshot_of_nothing_is_empty_and_gives_the_image_at_its_offset() -> None:
    """Control records alone move the offset; the image then holds nothing, but at a place in the log."""
    image, _ = replay_records(EMPTY_IMAGE, [FeatureLevelRecord(name="gone", feature_level=0)], 4, 2)
    assert list(snapshot_records(image)) == []
    assert snapshot_id_of(image) == SnapshotId(5, 2)
    assert image_of_snapshot(SnapshotId(5, 2), []) == image


def test_snapshot_with_contradicting_records_is_refused() -> None:
    """Bytes with a good CRC may still come from a foreign writer."""
    records = list(snapshot_records(image_with_partitions(2)))
    with pytest.raises(MetadataReplayError):
        image_of_snapshot(SnapshotId(3, 4), records[:1] + records[2:])
