"""Which operations clients are told that they may do (KIP-430).

Without an authorizer everybody may do everything that there is to do to a resource.
"""

from typing import Final

from sparklog.acls.access import SUPPORTED_OPERATIONS, operation_bits
from sparklog.acls.acl import AclResourceType

OPERATIONS_OMITTED: Final = -(2**31)
TOPIC_OPERATIONS: Final = operation_bits(SUPPORTED_OPERATIONS[AclResourceType.TOPIC])
CLUSTER_OPERATIONS: Final = operation_bits(SUPPORTED_OPERATIONS[AclResourceType.CLUSTER])
GROUP_OPERATIONS: Final = operation_bits(SUPPORTED_OPERATIONS[AclResourceType.GROUP])
