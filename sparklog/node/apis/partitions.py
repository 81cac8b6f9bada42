"""Requests to a partition's leader besides Produce and Fetch."""

from typing import Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.row import ApiRow, Offer
from sparklog.node.authorization.guards.topics import TopicItems, of_topics, offset_for_leader_epoch
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

LIST_OFFSETS: Final = ApiRow(
    ApiKey.LIST_OFFSETS,
    SupportedVersions(1, 11),
    broker=Offer(of_topics(AclOperation.DESCRIBE, TopicItems()), under_lease=True),
    # Besides the metadata log, the ends of a broker's other logs.
    quorum=Offer(),
)

OFFSET_FOR_LEADER_EPOCH: Final = ApiRow(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    SupportedVersions(2, 4),
    broker=Offer(offset_for_leader_epoch, under_lease=True),
)

DELETE_RECORDS: Final = ApiRow(
    ApiKey.DELETE_RECORDS,
    SupportedVersions(0, 2),
    broker=Offer(of_topics(AclOperation.DELETE, TopicItems(row={"low_watermark": -1})), under_lease=True),
)

DESCRIBE_PRODUCERS: Final = ApiRow(
    ApiKey.DESCRIBE_PRODUCERS,
    SupportedVersions(0, 0),
    broker=Offer(
        of_topics(AclOperation.READ, TopicItems(partitions="partition_indexes", index_field=None)),
        under_lease=True,
    ),
)
