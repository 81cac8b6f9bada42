"""What a controller writes before it decides anything: how a cluster begins, and what a restart changed.

Eligible leader replicas (KIP-966) were chosen under the min.insync.replicas of their time. A driver that is
started with another one forgets them: a smaller one lets records be committed without them. What it was
started with is noted as the configuration of its own node id. What the cluster was told while it ran wins
over that (Kafka's controllers note theirs as if the cluster had been told, which no later one overrules).
"""

import logging
from collections.abc import Sequence
from typing import Final

from driver.controller.machine.cluster_state import CONTROLLER_ID, MIN_IN_SYNC_REPLICAS
from driver.controller.machine.eligible_replicas import forget_eligible_replicas, topics_by_default
from sparklog.config import BrokerConfig
from sparklog.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE, NEW_CLUSTER_FEATURES
from sparklog.metadata.image import MetadataImage
from sparklog.metadata.schemas import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ResourceType,
    UserScramCredentialRecord,
)

__all__ = ["bootstrap_records", "eligible_replicas_records"]

_CONTROLLER: Final = str(CONTROLLER_ID)

logger = logging.getLogger(__name__)


def bootstrap_records(
    image: MetadataImage, config: BrokerConfig, first_users: Sequence[UserScramCredentialRecord] = ()
) -> list[MetadataRecord]:
    """Return the first records of a new cluster, or those that a cluster needs under this configuration.

    `first_users` are those that a new cluster knows.
    """
    records: list[MetadataRecord] = []
    features = image.features
    if not features:
        features = NEW_CLUSTER_FEATURES
        records += [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER_FEATURES.items()
        ]
        records += first_users
    elif first_users:
        logger.info("The cluster is not new: the users that it was to begin with are not set again")
    if features.get(ELIGIBLE_LEADER_REPLICAS_FEATURE, 0) > 0:
        records += _own_minimum_records(image, str(config.min_insync_replicas))
    return records


def eligible_replicas_records(image: MetadataImage, config: BrokerConfig) -> list[MetadataRecord]:
    """Return what a cluster needs that is to keep eligible leader replicas: one minimum for all brokers."""
    own = [
        name
        for kind, name in image.configs
        if kind == ResourceType.BROKER
        and name not in ("", _CONTROLLER)
        and MIN_IN_SYNC_REPLICAS in image.configs[kind, name]
    ]
    if own:
        logger.info("%s of brokers %s goes: there is one for all now", MIN_IN_SYNC_REPLICAS, ", ".join(own))
    removals: list[MetadataRecord] = [_minimum_record(name, None) for name in own]
    return [*removals, _minimum_record(_CONTROLLER, str(config.min_insync_replicas))]


def _own_minimum_records(image: MetadataImage, configured: str) -> list[MetadataRecord]:
    """Return what notes the min.insync.replicas of this driver, for the next one to compare with its own."""
    noted = image.broker_configs(CONTROLLER_ID).get(MIN_IN_SYNC_REPLICAS)
    told = image.broker_configs(None).get(MIN_IN_SYNC_REPLICAS)
    records: list[MetadataRecord] = []
    if noted is None and told is not None:
        # An earlier version noted it there, and nobody could tell the cluster anything.
        records.append(_minimum_record("", None))
        noted, told = told, None
    if noted == configured and not records:
        return []
    records.append(_minimum_record(_CONTROLLER, configured))
    if noted not in (None, configured):
        logger.info("%s is %s in the properties now and was %s", MIN_IN_SYNC_REPLICAS, configured, noted)
        if told is None:
            records += forget_eligible_replicas(topics_by_default(image))
        else:
            logger.warning("The cluster was told to go by %s=%s", MIN_IN_SYNC_REPLICAS, told)
    return records


def _minimum_record(resource_name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=resource_name,
        name=MIN_IN_SYNC_REPLICAS,
        value=value,
    )
