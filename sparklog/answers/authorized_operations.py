"""Which operations clients are told that they may do (KIP-430).

Without an authorizer everybody may do everything: one bit an AclOperation that the resource has.
"""

from typing import Final

__all__ = ["CLUSTER_OPERATIONS", "GROUP_OPERATIONS", "OPERATIONS_OMITTED", "TOPIC_OPERATIONS"]

OPERATIONS_OMITTED: Final = -(2**31)
TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
