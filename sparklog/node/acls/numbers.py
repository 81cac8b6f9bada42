"""The enum members of numbers in requests about ACLs. An undefined number is UNKNOWN, as in Kafka."""

from enum import IntEnum
from typing import TypeVar

from sparklog.node.acls.acl import AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.acls.filter import AclFilter
from sparklog.protocol.errors import ErrorCode, KafkaError

_Enum = TypeVar("_Enum", bound=IntEnum)


def known(meaning: type[_Enum], number: int) -> _Enum:
    """Return the member of a number.

    >>> known(PatternType, 4), known(PatternType, 99)
    (<PatternType.PREFIXED: 4>, <PatternType.UNKNOWN: 0>)
    """
    try:
        return meaning(number)
    except ValueError:
        return meaning(0)


def known_filter(
    resource_type: int,
    pattern_type: int,
    resource_name: str | None,
    principal: str | None,
    host: str | None,
    operation: int,
    permission_type: int,
) -> AclFilter:
    """Return the filter of a request.

    Raises:
        KafkaError: INVALID_REQUEST: a part of it is UNKNOWN.
    """
    asked = AclFilter(
        known(AclResourceType, resource_type),
        known(PatternType, pattern_type),
        resource_name,
        principal,
        host,
        known(AclOperation, operation),
        known(AclPermissionType, permission_type),
    )
    if PatternType.UNKNOWN is asked.pattern_type or AclResourceType.UNKNOWN is asked.resource_type:
        raise KafkaError(ErrorCode.invalid_request, "Unknown patternFilter.")
    if asked.operation is AclOperation.UNKNOWN or asked.permission_type is AclPermissionType.UNKNOWN:
        raise KafkaError(ErrorCode.invalid_request, "Unknown entryFilter.")
    return asked
