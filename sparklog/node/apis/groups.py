"""Groups: FindCoordinator, and the requests to their coordinator that are not about offsets."""

from typing import Any, Final

from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.apis.refusals import item, said
from sparklog.node.apis.row import ApiRow, Offer
from sparklog.node.authorization.guards import groups as guards
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.node.authorization.guards.topics import of_named
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError

_OF_MEMBER: Final = Offer(of_named((AclOperation.READ, AclResourceType.GROUP)), under_lease=True)


def _no_coordinator(body: Any, error: KafkaError) -> Any:
    nowhere = {"node_id": -1, "host": "", "port": -1}
    if not hasattr(body, "coordinator_keys"):
        return answer_to(body, **nowhere, **said(error))
    coordinators = tuple(
        item(body, "coordinators", key=key, **nowhere, **said(error)) for key in body.coordinator_keys
    )
    return answer_to(body, coordinators=coordinators)


FIND_COORDINATOR: Final = ApiRow(
    ApiKey.FIND_COORDINATOR,
    SupportedVersions(0, 6),
    broker=Offer(guards.find_coordinator),
    controller=Offer(guards.find_coordinator),
    refused=_no_coordinator,
    memory_times=10,
)

_FIRST_JOIN_WITHOUT_PROTOCOL: Final = 7


def _not_joined(body: Any, error: KafkaError) -> Any:
    # As Kafka's JoinGroupRequest: no generation, no leader, no member.
    no_protocol = None if body.__version__ >= _FIRST_JOIN_WITHOUT_PROTOCOL else ""
    return answer_to(
        body, generation_id=-1, member_id="", leader="", protocol_name=no_protocol, **said(error)
    )


JOIN_GROUP: Final = ApiRow(ApiKey.JOIN_GROUP, SupportedVersions(0, 9), broker=_OF_MEMBER, refused=_not_joined)

HEARTBEAT: Final = ApiRow(ApiKey.HEARTBEAT, SupportedVersions(0, 4), broker=_OF_MEMBER)

LEAVE_GROUP: Final = ApiRow(ApiKey.LEAVE_GROUP, SupportedVersions(0, 5), broker=_OF_MEMBER)

SYNC_GROUP: Final = ApiRow(ApiKey.SYNC_GROUP, SupportedVersions(0, 5), broker=_OF_MEMBER)

DESCRIBE_GROUPS: Final = ApiRow(
    ApiKey.DESCRIBE_GROUPS,
    SupportedVersions(0, 6),
    broker=Offer(guards.of_groups(AclOperation.DESCRIBE, "groups", "groups"), under_lease=True),
    memory_times=9,
)

LIST_GROUPS: Final = ApiRow(
    ApiKey.LIST_GROUPS, SupportedVersions(0, 5), broker=Offer(guards.list_groups, under_lease=True)
)

DELETE_GROUPS: Final = ApiRow(
    ApiKey.DELETE_GROUPS,
    SupportedVersions(0, 2),
    broker=Offer(guards.of_groups(AclOperation.DELETE, "groups_names", "results"), under_lease=True),
)

CONSUMER_GROUP_HEARTBEAT: Final = ApiRow(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    SupportedVersions(0, 1),
    broker=Offer(guards.consumer_group_heartbeat, under_lease=True),
)

CONSUMER_GROUP_DESCRIBE: Final = ApiRow(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    SupportedVersions(0, 1),
    broker=Offer(guards.consumer_group_describe, under_lease=True),
)
