"""ACLs: described by every node, changed by the controller."""

from typing import Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.parts import Parts
from sparklog.node.apis.refusals import each_item
from sparklog.node.apis.row import FORWARDED, ApiRow, Offer
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

DESCRIBE_ACLS: Final = ApiRow(
    ApiKey.DESCRIBE_ACLS,
    SupportedVersions(1, 3),
    broker=Offer(of_cluster(AclOperation.DESCRIBE)),
    controller=Offer(of_cluster(AclOperation.DESCRIBE), many=False),
    also_in_envelope=True,
)

CREATE_ACLS: Final = ApiRow(
    ApiKey.CREATE_ACLS,
    SupportedVersions(1, 3),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER)),
    refused=each_item("creations", "results"),
    parts=Parts("creations", "results", id),
)

DELETE_ACLS: Final = ApiRow(
    ApiKey.DELETE_ACLS,
    SupportedVersions(1, 3),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER)),
    refused=each_item("filters", "filter_results"),
    parts=Parts("filters", "filter_results", id),
)
