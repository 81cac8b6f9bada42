"""The features of a cluster that have levels (KIP-584), and which of them this version serves.

A cluster's finalized levels are in its metadata log; a broker registers only where it serves all of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.metadata.schemas import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL

__all__ = ["ELIGIBLE_LEADER_REPLICAS_FEATURE", "NEW_CLUSTER_FEATURES", "SUPPORTED_FEATURES"]

ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
"""Level 1 keeps eligible leader replicas (KIP-966), level 0 (or none) does not."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
        ELIGIBLE_LEADER_REPLICAS_FEATURE: (0, 1),
    }
)
"""The lowest and the highest level of each feature that controller and brokers of this version serve."""

NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = MappingProxyType(
    {METADATA_VERSION_FEATURE: METADATA_VERSION_LEVEL, ELIGIBLE_LEADER_REPLICAS_FEATURE: 1}
)
"""The levels with which a cluster begins."""
