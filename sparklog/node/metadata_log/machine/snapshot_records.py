"""Conversion of a metadata image to its records, the contents of a snapshot.

Rule kept: replaying the records on an empty image gives an equal image. Offset and leader epoch are not among
the records; they are the snapshot's id.

The order is that of Kafka's image writers: features first, `metadata.version` before any other, because it
determines how the rest is read; then brokers, topics each with its partitions, configurations, quotas,
producer ids, ACLs, SCRAM credentials.

Within each the order is that of ids and names, so equal images give equal records on every broker.

Source: KIP-630; Kafka's org.apache.kafka.image.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sparklog.node.metadata.acl_records import acl_record
from sparklog.node.metadata.image import EMPTY_IMAGE, ClientQuotaEntity, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import (
    METADATA_VERSION_FEATURE,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    TopicRecord,
)
from sparklog.node.metadata.scram_records import scram_credential_record
from sparklog.protocol.types import BrokerId, SnapshotId

_NO_BROKER: Final[BrokerId] = -1


def snapshot_id_of(image: MetadataImage) -> SnapshotId:
    return SnapshotId(image.end_offset, image.leader_epoch)


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION_FEATURE, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for _, registration in sorted(image.brokers.items()):
        yield registration.to_record()
    for topic_id, topic in sorted(image.topics.by_id.items()):
        yield TopicRecord(name=topic.name, topic_id=topic_id)
        for number, partition in sorted(topic.partitions.items()):
            yield partition.to_record(topic_id, number)
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    for entity, quotas in sorted(image.client_quotas.items(), key=_order_of_quotas):
        parts = tuple(QuotaEntityData(entity_type=each, entity_name=name) for each, name in entity)
        for key, quota in sorted(quotas.items()):
            yield ClientQuotaRecord(entity=parts, key=key, value=quota)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=_NO_BROKER, next_producer_id=image.next_producer_id)
    for acl_id, acl in sorted(image.acls.items()):
        yield acl_record(acl_id, acl)
    for scram_key in sorted(image.scram_credentials):
        yield scram_credential_record(scram_key, image.scram_credentials[scram_key])


def _order_of_quotas(
    item: tuple[ClientQuotaEntity, Mapping[str, float]],
) -> list[tuple[str, bool, str]]:
    """Return a sort key for names, some of which are `None`."""
    return [(entity_type, name is not None, name or "") for entity_type, name in item[0]]


def image_of_snapshot(snapshot_id: SnapshotId, records: Iterable[MetadataRecord]) -> MetadataImage:
    """Return the image of a snapshot's records.

    Raises:
        MetadataReplayError: the records are not those of an image.
    """
    image, _ = replay_records(EMPTY_IMAGE, records, snapshot_id.end_offset - 1, snapshot_id.leader_epoch)
    return image
