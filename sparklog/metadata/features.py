"""The features of a cluster that have levels (KIP-584), and which of them this version serves.

A cluster's finalized levels are in its metadata log; a broker registers only where it serves all of them. The
level of kraft.version is that of the log itself, in its control records, and no feature level record has it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.metadata.image import MetadataImage
from sparklog.metadata.schemas import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL

ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
"""Level 1 keeps eligible leader replicas (KIP-966), level 0 (or none) does not."""
GROUP_VERSION_FEATURE: Final = "group.version"
"""Level 1 has consumer groups whose members are assigned by their coordinator (KIP-848)."""
KRAFT_VERSION_FEATURE: Final = "kraft.version"
"""Level 1, the only one here, has voters that the metadata log names with their directories (KIP-853)."""
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

_KRAFT_VERSION_LEVEL: Final = 1


def advertised_features() -> dict[str, tuple[int, int]]:
    """Return the lowest and the highest level of each feature that clients are shown as supported."""
    return {**SUPPORTED_FEATURES, KRAFT_VERSION_FEATURE: (_KRAFT_VERSION_LEVEL, _KRAFT_VERSION_LEVEL)}


def finalized_features(image: MetadataImage) -> dict[str, int]:
    """Return the level of each feature that the cluster has; none of a cluster that has not begun."""
    if not image.features:
        return {}
    return {**image.features, KRAFT_VERSION_FEATURE: _KRAFT_VERSION_LEVEL}
