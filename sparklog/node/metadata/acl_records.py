"""Conversion between ACLs and the records of the metadata log."""

from uuid import UUID

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.metadata.schemas import AccessControlEntryRecord


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission_type),
    )


def acl_of_record(record: AccessControlEntryRecord) -> Acl:
    """Return the ACL of a record.

    Raises:
        ValueError: one of its numbers is unknown here.
    """
    return Acl(
        resource_type=AclResourceType(record.resource_type),
        pattern_type=PatternType(record.pattern_type),
        resource_name=record.resource_name,
        principal=record.principal,
        host=record.host,
        operation=AclOperation(record.operation),
        permission_type=AclPermissionType(record.permission_type),
    )
