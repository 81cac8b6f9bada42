"""DescribeAcls: what matches the filter, by resource."""

from uuid import UUID

from kio.schema.describe_acls.v3.request import DescribeAclsRequest

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.describe_acls import describe_acls_response
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode

ENABLED = BrokerConfig.from_mapping(
    {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
)
WRITE = Acl(
    AclResourceType.TOPIC,
    PatternType.PREFIXED,
    "ord",
    "User:ann",
    "*",
    AclOperation.WRITE,
    AclPermissionType.ALLOW,
)
ACLS = (
    WRITE,
    WRITE._replace(host="10.0.0.1", permission_type=AclPermissionType.DENY),
    WRITE._replace(pattern_type=PatternType.LITERAL, resource_name="*", operation=AclOperation.READ),
    WRITE._replace(pattern_type=PatternType.LITERAL, resource_name="orders"),
    WRITE._replace(resource_type=AclResourceType.GROUP),
)
IMAGE = MetadataImage(acls={UUID(int=number): acl for number, acl in enumerate(ACLS, 1)})


def told(config: BrokerConfig = ENABLED, **fields: object) -> list[tuple[int, str, int]] | ErrorCode:
    """Return type and name of each resource that is described, with the number of its ACLs; or the error."""
    anything = {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    request = DescribeAclsRequest(**{**anything, **fields})
    response = in_one_go(describe_acls_response(IMAGE, config, request))
    if response.error_code is not ErrorCode.none:
        return response.error_code
    return [(each.resource_type, each.resource_name, len(each.acls)) for each in response.resources]


def test_describe_acls_finds_what_the_filter_names() -> None:
    """MATCH is what an operator asks before he wonders who may read a topic."""
    assert told() == [(2, "ord", 2), (2, "*", 1), (2, "orders", 1), (3, "ord", 1)]
    assert told(resource_name_filter="orders") == [(2, "orders", 1)]
    match = {"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH}
    assert told(**match, resource_type_filter=2) == [(2, "ord", 2), (2, "*", 1), (2, "orders", 1)]
    assert told(pattern_type_filter=PatternType.PREFIXED, resource_name_filter="orders") == []
    assert told(permission_type=AclPermissionType.DENY) == [(2, "ord", 1)]
    assert told(host_filter="*", principal_filter="User:ann", operation=AclOperation.READ) == [(2, "*", 1)]


def test_describe_acls_refuses_what_it_does_not_know_and_what_is_not_there() -> None:
    """A filter that is not understood must not find everything."""
    assert told(resource_type_filter=0) is ErrorCode.invalid_request
    assert told(operation=99) is ErrorCode.invalid_request
    assert told(BrokerConfig()) is ErrorCode.security_disabled
