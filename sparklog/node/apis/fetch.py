"""Fetch and FetchSnapshot: of partitions, and of the metadata log, which only driver and brokers follow."""

from typing import Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.row import ApiRow, Offer, always
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.codec.fixed.fetch import request_reader

_FETCH_WITH_STATE: Final = 15
"""From this version on a follower says its id in a field of its own (KIP-903)."""


def fetches_as_replica(request: Request) -> bool:
    body = request.body
    if request.api_version >= _FETCH_WITH_STATE:
        return bool(body.replica_state.replica_id >= 0)
    return bool(body.replica_id >= 0)


FETCH: Final = ApiRow(
    ApiKey.FETCH,
    SupportedVersions(4, 18),
    broker=Offer(cluster_action=fetches_as_replica, under_lease=True, fixed_reader=request_reader),
    controller=Offer(of_cluster(AclOperation.CLUSTER_ACTION), many=False, cluster_action=always),
    # By topic id: the metadata log is not fetched by name.
    quorum=Offer(many=False, versions=SupportedVersions(13, 18)),
    memory_times=4,
)

FETCH_SNAPSHOT: Final = ApiRow(
    ApiKey.FETCH_SNAPSHOT,
    controller=Offer(of_cluster(AclOperation.CLUSTER_ACTION), many=False, cluster_action=always),
    quorum=Offer(many=False),
)
