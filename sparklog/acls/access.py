"""What one request may do: given to whoever answers it, where an item of it may be refused.

Whoever is denied something that he asked for is told so in the audit log. What is only found out on his
behalf, to tell him what there is or what he may do, is no attempt and is asked with `audit=False`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from sparklog.acls.acl import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.acls.machine.authorizer import Decisions

Denied = Callable[[Decisions, int, AclOperation, AclResourceType, str], None]
"""Takes note of a denial: whose, in a request of which API key, and of what."""

SUPPORTED_OPERATIONS: Final = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""What can be done to resources of which clients are told what they may do (KIP-430)."""


class Access:
    """What the principal of one request may do."""

    __slots__ = ("_api_key", "_decisions", "_denied", "image")

    def __init__(self, decisions: Decisions, image: Any, api_key: int, denied: Denied) -> None:
        self._decisions = decisions
        self._api_key = api_key
        self._denied = denied
        self.image = image
        """The metadata image whose ACLs decide, which also knows what topic ids stand for."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        resource_name: str,
        *,
        audit: bool = True,
    ) -> bool:
        """Whether the operation is allowed."""
        allowed = self._decisions.allows(operation, resource_type, resource_name)
        if not allowed and audit:
            self._denied(self._decisions, self._api_key, operation, resource_type, resource_name)
        return allowed

    def allows_on_cluster(self, operation: AclOperation, *, audit: bool = True) -> bool:
        """Whether the operation is allowed on the cluster."""
        return self.allows(operation, AclResourceType.CLUSTER, CLUSTER_NAME, audit=audit)

    def allows_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether it is allowed for any resource of the type."""
        return self._decisions.allows_any(operation, resource_type)

    def allowing(self, operation: AclOperation, resource_type: AclResourceType) -> Callable[[str], bool]:
        """Return what says of resources whether the operation is allowed, also on another thread.

        It keeps nothing of what it decides, and nothing of it goes to the audit log.
        """
        return partial(self._decisions.allows_afresh, operation, resource_type)

    def operations(self, resource_type: AclResourceType, resource_name: str) -> int:
        """Return what is allowed, one bit an operation that such a resource has."""
        return operation_bits(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self._decisions.allows(operation, resource_type, resource_name)
        )


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Return the operations as clients are told them.

    >>> operation_bits([AclOperation.READ, AclOperation.DESCRIBE])
    264
    """
    return sum(1 << operation for operation in operations)
