"""Responses to DescribeAcls from a metadata image.

Source: Kafka's AclApis and DescribeAclsResponse.
"""

from typing import Any

from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse

from sparklog.node.acls.acl import Acl, AclResourceType, PatternType
from sparklog.node.acls.numbers import known_filter
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError

_AT_ONCE = 256


async def describe_acls_response(
    image: MetadataImage, config: BrokerConfig, request: Any
) -> DescribeAclsResponse:
    """Return the response to a DescribeAclsRequest of version 3; a step for every `_AT_ONCE` ACLs."""
    try:
        if config.authorizer is None:
            raise KafkaError(ErrorCode.security_disabled, "No Authorizer is configured on the broker")
        wanted = known_filter(
            request.resource_type_filter,
            request.pattern_type_filter,
            request.resource_name_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
    except KafkaError as error:
        return _response((), error.error_code, error.message)
    resources: dict[tuple[AclResourceType, PatternType, str], list[Acl]] = {}
    for number, acl in enumerate(image.acls.values()):
        if number % _AT_ONCE == 0:
            await turn()
        if wanted.matches(acl):
            resources.setdefault(acl[:3], []).append(acl)
    described = []
    for (resource_type, pattern_type, resource_name), acls in resources.items():
        await turn()
        described.append(
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=resource_name,
                pattern_type=pattern_type,
                acls=tuple(
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ),
            )
        )
    return _response(tuple(described))


def _response(
    resources: tuple[DescribeAclsResource, ...],
    error_code: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> Any:
    return unthrottled(
        DescribeAclsResponse, error_code=error_code, error_message=message, resources=resources
    )
