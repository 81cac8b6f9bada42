"""The permissions of one request's principal, for handlers that may refuse single items of it.

A denial of a requested item goes to the audit log. Checks made to list only visible resources or allowed
operations are not attempts, and are made with `audit=False`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from sparklog.node.acls.acl import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.node.acls.machine.authorizer import Decisions

Denied = Callable[[Decisions, int, AclOperation, AclResourceType, str], None]
"""Logs a denial: the decisions of the principal, the API key of the request, the operation and the
resource."""

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
"""The operations reported of resources whose allowed operations clients may request (KIP-430)."""


class Access:
    """The permissions of one request's principal."""

    __slots__ = ("_api_key", "_decisions", "_denied", "image")

    def __init__(self, decisions: Decisions, image: Any, api_key: int, denied: Denied) -> None:
        self._decisions = decisions
        self._api_key = api_key
        self._denied = denied
        self.image = image
        """The metadata image of the ACLs, which also resolves topic ids."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        resource_name: str,
        *,
        audit: bool = True,
    ) -> bool:
        allowed = self._decisions.allows(operation, resource_type, resource_name)
        if not allowed and audit:
            self._denied(self._decisions, self._api_key, operation, resource_type, resource_name)
        return allowed

    def allows_on_cluster(self, operation: AclOperation, *, audit: bool = True) -> bool:
        return self.allows(operation, AclResourceType.CLUSTER, CLUSTER_NAME, audit=audit)

    def allows_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return self._decisions.allows_any(operation, resource_type)

    def allowing(self, operation: AclOperation, resource_type: AclResourceType) -> Callable[[str], bool]:
        """Return a function that checks resources by name, on any thread.

        It caches no decision and does not write to the audit log.
        """
        return partial(self._decisions.allows_afresh, operation, resource_type)

    def operations(self, resource_type: AclResourceType, resource_name: str) -> int:
        """Return the allowed operations as bits, of those that such a resource has."""
        return operation_bits(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self._decisions.allows(operation, resource_type, resource_name)
        )


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Return the bit field of operations in responses.

    >>> operation_bits([AclOperation.READ, AclOperation.DESCRIBE])
    264
    """
    return sum(1 << operation for operation in operations)
