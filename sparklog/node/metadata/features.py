"""The cluster's features with levels (KIP-584), and the levels that this version supports.

A cluster's finalized levels are in its metadata log; a broker registers only if it supports all of them. The
level of kraft.version is in the log's control records; no feature level record has it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL

ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
"""Level 1 maintains eligible leader replicas (KIP-966), level 0 (or none) does not."""
GROUP_VERSION_FEATURE: Final = "group.version"
"""Level 1 has consumer groups with assignment by the coordinator (KIP-848)."""
KRAFT_VERSION_FEATURE: Final = "kraft.version"
"""Level 1, the only one here, has voters that the metadata log names with their directories (KIP-853)."""
TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
"""Level 2 gives each transaction its own producer epoch (KIP-890)."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
        ELIGIBLE_LEADER_REPLICAS_FEATURE: (0, 1),
        GROUP_VERSION_FEATURE: (0, 1),
        TRANSACTION_VERSION_FEATURE: (0, 2),
    }
)
"""The lowest and the highest level of each feature that this version supports."""

NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: METADATA_VERSION_LEVEL,
        ELIGIBLE_LEADER_REPLICAS_FEATURE: 1,
        GROUP_VERSION_FEATURE: 1,
        TRANSACTION_VERSION_FEATURE: 2,
    }
)

_KRAFT_VERSION_LEVEL: Final = 1


def advertised_features() -> dict[str, tuple[int, int]]:
    """Return the lowest and the highest supported level of each feature, for ApiVersions."""
    return {**SUPPORTED_FEATURES, KRAFT_VERSION_FEATURE: (_KRAFT_VERSION_LEVEL, _KRAFT_VERSION_LEVEL)}


def finalized_features(image: MetadataImage) -> dict[str, int]:
    """Return the finalized level of each feature; none before the cluster's first record."""
    if not image.features:
        return {}
    return {**image.features, KRAFT_VERSION_FEATURE: _KRAFT_VERSION_LEVEL}
