"""Handlers of the group coordinator's APIs."""

from collections.abc import Mapping

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.coordinators.groups.api.consumer_group_describe import ConsumerGroupDescribeHandler
from sparklog.executor.coordinators.groups.api.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from sparklog.executor.coordinators.groups.api.delete_groups import DeleteGroupsHandler
from sparklog.executor.coordinators.groups.api.describe_groups import DescribeGroupsHandler
from sparklog.executor.coordinators.groups.api.heartbeat import HeartbeatHandler
from sparklog.executor.coordinators.groups.api.join_group import JoinGroupHandler
from sparklog.executor.coordinators.groups.api.leave_group import LeaveGroupHandler
from sparklog.executor.coordinators.groups.api.list_groups import ListGroupsHandler
from sparklog.executor.coordinators.groups.api.offset_commit import OffsetCommitHandler
from sparklog.executor.coordinators.groups.api.offset_delete import OffsetDeleteHandler
from sparklog.executor.coordinators.groups.api.offset_fetch import OffsetFetchHandler
from sparklog.executor.coordinators.groups.api.sync_group import SyncGroupHandler
from sparklog.executor.coordinators.groups.api.txn_offset_commit import TxnOffsetCommitHandler, verify_in
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.requests import Handler
from sparklog.protocol.codec.apis import ApiKey


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    table, coordinators = services.replicas.table, services.replicas.coordinators.groups
    max_batch_bytes = services.config.message_max_bytes
    verify = verify_in(table, services.replicas.transaction_verifier)

    def image() -> MetadataImage:
        return table.image

    return {
        ApiKey.JOIN_GROUP: JoinGroupHandler(coordinators).handle,
        ApiKey.SYNC_GROUP: SyncGroupHandler(coordinators).handle,
        ApiKey.HEARTBEAT: HeartbeatHandler(coordinators).handle,
        ApiKey.LEAVE_GROUP: LeaveGroupHandler(coordinators).handle,
        ApiKey.OFFSET_COMMIT: OffsetCommitHandler(
            coordinators, image, max_batch_bytes=max_batch_bytes
        ).handle,
        ApiKey.OFFSET_FETCH: OffsetFetchHandler(coordinators, image).handle,
        ApiKey.OFFSET_DELETE: OffsetDeleteHandler(coordinators, image).handle,
        ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitHandler(
            coordinators,
            image,
            verify,
            max_batch_bytes=max_batch_bytes,
        ).handle,
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(coordinators).handle,
        ApiKey.LIST_GROUPS: ListGroupsHandler(coordinators).handle,
        ApiKey.DELETE_GROUPS: DeleteGroupsHandler(coordinators).handle,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatHandler(coordinators, image).handle,
        ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeHandler(coordinators, image).handle,
    }
