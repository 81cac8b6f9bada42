"""Authorized operations in responses (KIP-430).

Without an authorizer every client may do all operations that a resource supports.
"""

from typing import Final

from sparklog.node.acls.access import SUPPORTED_OPERATIONS, operation_bits
from sparklog.node.acls.acl import AclResourceType

OPERATIONS_OMITTED: Final = -(2**31)
TOPIC_OPERATIONS: Final = operation_bits(SUPPORTED_OPERATIONS[AclResourceType.TOPIC])
CLUSTER_OPERATIONS: Final = operation_bits(SUPPORTED_OPERATIONS[AclResourceType.CLUSTER])
GROUP_OPERATIONS: Final = operation_bits(SUPPORTED_OPERATIONS[AclResourceType.GROUP])
