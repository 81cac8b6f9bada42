"""The records of a controller's activation: those of a new cluster, and the changes by a restart.

Eligible leader replicas (KIP-966) were chosen under the min.insync.replicas of their time, so a cluster
that keeps them has one minimum for all brokers in its log, as Kafka's has: the default of all brokers,
which no broker overrides. A new cluster takes it from the properties of its controller.

Unlike in Kafka, whose properties count once only, a driver that is started with another minimum changes
that default, and forgets the eligible replicas: a smaller minimum lets records be committed without them.
It does so unless the default was altered meanwhile. To tell the two apart, the minimum of the properties
is noted as the configuration of the controller's own node id.

A stop of the cluster may have left it read-only; a start removes that. The cluster's size is in the log from
the first start on. An application that starts with more racks or brokers raises it to its own.

Source: Kafka's ActivationRecordsGenerator, and ConfigurationControlManager.maybeGenerateElrSafetyRecords.
"""

import logging
from collections.abc import Sequence
from typing import Final

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID, MIN_IN_SYNC_REPLICAS
from sparklog.driver.controller.machine.eligible_replicas import forget_eligible_replicas, topics_by_default
from sparklog.node.config import BrokerConfig
from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY, READ_ONLY_KEY
from sparklog.node.config.size_request import configured_numbers
from sparklog.node.metadata.cluster_size import ClusterSize
from sparklog.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE, NEW_CLUSTER_FEATURES
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ResourceType,
    UserScramCredentialRecord,
)

_CONTROLLER: Final = str(CONTROLLER_ID)

logger = logging.getLogger(__name__)


def bootstrap_records(
    image: MetadataImage, config: BrokerConfig, initial_scram_users: Sequence[UserScramCredentialRecord] = ()
) -> list[MetadataRecord]:
    """Return the first records of a new cluster, or those that a cluster needs under this configuration.

    `initial_scram_users` are the SCRAM credentials of a new cluster.
    """
    records: list[MetadataRecord] = []
    features = image.features
    if not features:
        features = NEW_CLUSTER_FEATURES
        records += [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER_FEATURES.items()
        ]
        records += initial_scram_users
    elif initial_scram_users:
        logger.info("The cluster is not new: its first users are not set again")
    if READ_ONLY_KEY in image.broker_configs(None):
        logger.info("%s is removed: the cluster has started again", READ_ONLY_KEY)
        records.append(
            ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=READ_ONLY_KEY, value=None)
        )
    configured = str(config.min_insync_replicas)
    if features.get(ELIGIBLE_LEADER_REPLICAS_FEATURE, 0) > 0 or _noted_minimum(image) is not None:
        records += _minimum_records(image, configured)
    return records


def size_records(
    image: MetadataImage,
    started_size: ClusterSize,
    rack_names: Sequence[str],
    *,
    is_new_application: bool,
) -> list[MetadataRecord]:
    """Return the records of a cluster's size at the start of an application: the larger of both sizes.

    A new cluster has the size of the start. A log without a size has that of its brokers; it was written
    before sizes were. The larger size stays: a later start with fewer brokers has those of this one too.
    Each number is the larger one, so their product may be larger than both sizes: a warning names it.

    A later controller of the same application (not `is_new_application`) only writes what is missing: the
    first one may have ended before its records were committed, and scaling waits for the size.
    """
    configs = image.broker_configs(None)
    present = ClusterSize(0, 0)
    if image.brokers:
        present = ClusterSize.of({each: broker.rack for each, broker in image.brokers.items()}, rack_names)
    configured = configured_numbers(configs)
    former = present.changed(*configured)
    both = ClusterSize(*map(max, former, started_size))
    if is_new_application and both.brokers > max(former.brokers, started_size.brokers):
        logger.warning(
            "The cluster had %s, and the application has started with %s: it gets %s, %d brokers, as a start "
            "lowers neither number. Scale it to the size that it should have (sparklog-scale)",
            former,
            started_size,
            both,
            both.brokers,
        )
    records: list[MetadataRecord] = []
    for name, had, size in zip((RACKS_KEY, BROKERS_PER_RACK_KEY), configured, both, strict=True):
        if had == size or (had is not None and not is_new_application):
            continue
        if had is not None:
            logger.info("%s was %d: the application has started with %d", name, had, size)
        records.append(
            ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=name, value=str(size))
        )
    return records


def eligible_replicas_records(image: MetadataImage, config: BrokerConfig) -> list[MetadataRecord]:
    """Return the records of a cluster that begins to keep eligible leader replicas: one minimum for all."""
    own = [
        name
        for kind, name in image.configs
        if kind == ResourceType.BROKER
        and name not in ("", _CONTROLLER)
        and MIN_IN_SYNC_REPLICAS in image.configs[kind, name]
    ]
    if own:
        logger.info(
            "%s of brokers %s is removed: brokers share one now", MIN_IN_SYNC_REPLICAS, ", ".join(own)
        )
    removals: list[MetadataRecord] = [_minimum_record(name, None) for name in own]
    return [*removals, *_minimum_records(image, str(config.min_insync_replicas))]


def _minimum_records(image: MetadataImage, configured: str) -> list[MetadataRecord]:
    """Return the records that make `configured` the default of all brokers, unless that was altered."""
    noted = _noted_minimum(image)
    default = image.broker_configs(None).get(MIN_IN_SYNC_REPLICAS)
    records: list[MetadataRecord] = []
    if noted != configured:
        records.append(_minimum_record(_CONTROLLER, configured))
    if default is not None and noted is not None and default != noted:
        if default != configured:
            logger.warning(
                "%s is %s in the properties, but was altered to %s for all brokers, which takes precedence",
                MIN_IN_SYNC_REPLICAS,
                configured,
                default,
            )
        return records
    if default != configured:
        records.append(_minimum_record("", configured))
    former = noted if default is None else default
    if former not in (None, configured):
        logger.info("%s is %s in the properties now and was %s", MIN_IN_SYNC_REPLICAS, configured, former)
        records += forget_eligible_replicas(topics_by_default(image))
    return records


def _noted_minimum(image: MetadataImage) -> str | None:
    return image.broker_configs(CONTROLLER_ID).get(MIN_IN_SYNC_REPLICAS)


def _minimum_record(resource_name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=resource_name,
        name=MIN_IN_SYNC_REPLICAS,
        value=value,
    )
