"""Committed offsets of groups."""

from typing import Final

from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.apis.refusals import each_topic
from sparklog.node.apis.row import ApiRow, Offer
from sparklog.node.authorization.guards.groups import offset_fetch
from sparklog.node.authorization.guards.topics import TopicItems, of_named
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

_READ: Final = (AclOperation.READ, AclResourceType.GROUP)

OFFSET_COMMIT: Final = ApiRow(
    ApiKey.OFFSET_COMMIT,
    SupportedVersions(2, 10),
    broker=Offer(of_named(_READ, topics=TopicItems(first_by_id=10)), under_lease=True),
    refused=each_topic("topics"),
    memory_times=7,
)

OFFSET_FETCH: Final = ApiRow(
    ApiKey.OFFSET_FETCH,
    SupportedVersions(1, 10),
    broker=Offer(offset_fetch, under_lease=True),
    memory_times=10,
)

OFFSET_DELETE: Final = ApiRow(
    ApiKey.OFFSET_DELETE,
    SupportedVersions(0, 0),
    broker=Offer(
        of_named((AclOperation.DELETE, AclResourceType.GROUP), topics=TopicItems()), under_lease=True
    ),
)

TXN_OFFSET_COMMIT: Final = ApiRow(
    ApiKey.TXN_OFFSET_COMMIT,
    SupportedVersions(0, 5),
    broker=Offer(
        of_named((AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID), _READ, topics=TopicItems()),
        under_lease=True,
    ),
    refused=each_topic("topics"),
)
