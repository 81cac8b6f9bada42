"""The metadata quorum: candidates and leaders ask brokers, brokers announce themselves to candidates."""

from typing import Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.row import FORWARDED, ApiRow, Offer, always
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

_ONE_PARTITION: Final = Offer(many=False)
"""All requests are about the one partition of the metadata log."""

VOTE: Final = ApiRow(ApiKey.VOTE, quorum=_ONE_PARTITION)

BEGIN_QUORUM_EPOCH: Final = ApiRow(ApiKey.BEGIN_QUORUM_EPOCH, quorum=_ONE_PARTITION)

END_QUORUM_EPOCH: Final = ApiRow(ApiKey.END_QUORUM_EPOCH, quorum=_ONE_PARTITION)

ADD_RAFT_VOTER: Final = ApiRow(ApiKey.ADD_RAFT_VOTER, controller=Offer(many=False, cluster_action=always))

DESCRIBE_QUORUM: Final = ApiRow(
    ApiKey.DESCRIBE_QUORUM,
    SupportedVersions(0, 2),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.DESCRIBE), many=False),
    quorum=_ONE_PARTITION,
)
