"""The features of a cluster that have levels (KIP-584), and which of them this version serves.

A cluster's finalized levels are in its metadata log; a broker registers only where it serves all of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.metadata.schemas import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL

__all__ = [
    "ELIGIBLE_LEADER_REPLICAS_FEATURE",
    "GROUP_VERSION_FEATURE",
    "NEW_CLUSTER_FEATURES",
    "SUPPORTED_FEATURES",
    "TRANSACTION_VERSION_FEATURE",
]

ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
"""Level 1 keeps eligible leader replicas (KIP-966), level 0 (or none) does not."""
GROUP_VERSION_FEATURE: Final = "group.version"
"""Level 1 has consumer groups whose members are assigned by their coordinator (KIP-848)."""
TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
"""Level 2 gives each transaction a producer epoch of its own (KIP-890)."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
        ELIGIBLE_LEADER_REPLICAS_FEATURE: (0, 1),
        GROUP_VERSION_FEATURE: (0, 1),
        TRANSACTION_VERSION_FEATURE: (0, 2),
    }
)
"""The lowest and the highest level of each feature that controller and brokers of this version serve."""

NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: METADATA_VERSION_LEVEL,
        ELIGIBLE_LEADER_REPLICAS_FEATURE: 1,
        GROUP_VERSION_FEATURE: 1,
        TRANSACTION_VERSION_FEATURE: 2,
    }
)
"""The levels with which a cluster begins."""
