"""Filters of ACLs, for DescribeAcls and DeleteAcls.

Source: Kafka's AclBindingFilter, ResourcePatternFilter and AccessControlEntryFilter; KIP-290.
"""

from typing import NamedTuple

from sparklog.node.acls.acl import (
    WILDCARD,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)


class AclFilter(NamedTuple):
    """A pattern for ACLs; None and ANY match every value."""

    resource_type: AclResourceType
    pattern_type: PatternType
    """MATCH selects every ACL that covers the resource of that name."""
    resource_name: str | None
    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects the ACL.

        >>> topic = AclFilter(AclResourceType.TOPIC, PatternType.MATCH, "orders", None, None,
        ...     AclOperation.ANY, AclPermissionType.ANY)
        >>> said = ("User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW)
        >>> topic.matches(Acl(AclResourceType.TOPIC, PatternType.PREFIXED, "ord", *said))
        True
        """
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
