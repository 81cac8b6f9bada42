"""What a controller writes before it decides anything: how a cluster begins, and what a restart changed.

Eligible leader replicas (KIP-966) were chosen under the min.insync.replicas of their time. A driver that is
started with another one forgets them: a smaller one lets records be committed without them.
"""

import logging

from driver.controller.machine.cluster_state import MIN_IN_SYNC_REPLICAS
from driver.controller.machine.eligible_replicas import forget_eligible_replicas
from sparklog.config import BrokerConfig
from sparklog.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE, NEW_CLUSTER_FEATURES
from sparklog.metadata.image import MetadataImage
from sparklog.metadata.schemas import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ResourceType,
)

__all__ = ["bootstrap_records", "min_in_sync_replicas_records"]

logger = logging.getLogger(__name__)


def bootstrap_records(image: MetadataImage, config: BrokerConfig) -> list[MetadataRecord]:
    """Return the first records of a new cluster, or those that a cluster needs under this configuration."""
    records: list[MetadataRecord] = []
    features = image.features
    if not features:
        features = NEW_CLUSTER_FEATURES
        records += [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER_FEATURES.items()
        ]
    if features.get(ELIGIBLE_LEADER_REPLICAS_FEATURE, 0) > 0:
        records += min_in_sync_replicas_records(image, str(config.min_insync_replicas))
    return records


def min_in_sync_replicas_records(image: MetadataImage, configured: str) -> list[MetadataRecord]:
    """Return what notes the cluster's min.insync.replicas, for the next driver to compare with its own."""
    noted = image.broker_configs(None).get(MIN_IN_SYNC_REPLICAS)
    if noted == configured:
        return []
    records: list[MetadataRecord] = [
        ConfigRecord(
            resource_type=ResourceType.BROKER, resource_name="", name=MIN_IN_SYNC_REPLICAS, value=configured
        )
    ]
    if noted is not None:
        logger.info("%s is %s now and was %s", MIN_IN_SYNC_REPLICAS, configured, noted)
        records += forget_eligible_replicas(image.topics.by_id.values())
    return records
