"""UpdateFeatures: the cluster's feature levels are raised, or lowered where nothing is lost by it.

The rules:

- The controller and every registered broker must support a level, also a broker that is away, which could not
  come back otherwise (`broker_registration`).
- An update that lowers a level has to declare that, and is refused if it would remove needed state.
- The present level of a feature is accepted. Each update of a request is made or refused by itself (KIP-584),
  so that `kafka-features upgrade --release-version` makes the possible changes and names the rest. Kafka
  makes all updates or none; the reply to a single one is Kafka's.

There is one metadata.version here, that of Kafka 4.3: it can be neither raised nor lowered. Eligible leader
replicas (KIP-966) can be turned off and on. Off, they are forgotten, which a partition all of whose in-sync
replicas are away cannot afford: it would never have a leader again.

Source: Kafka's FeatureControlManager; KIP-584, KIP-778.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum

from kio.schema.update_features.v1.response import UpdatableFeatureResult, UpdateFeaturesResponse
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest

from sparklog.driver.controller.machine.activation import eligible_replicas_records
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.eligible_replicas import forget_eligible_replicas
from sparklog.node.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_FEATURE,
    advertised_features,
    finalized_features,
)
from sparklog.node.metadata.schemas import FeatureLevelRecord, MetadataRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class UpgradeType(IntEnum):
    """The direction and the safety of an update, as its client declares it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(cluster: ClusterState, request: UpdateFeaturesRequest) -> ControllerResult:
    names = [update.feature for update in request.feature_updates]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        return _answer([], ErrorCode.invalid_request, f"Feature {repeated[0]} is named more than once.")
    records: list[MetadataRecord] = []
    results = []
    for update in request.feature_updates:
        error_code, message = ErrorCode.none, None
        try:
            records += _decide(cluster, update)
        except KafkaError as error:
            error_code, message = error.error_code, error.message
            logger.info("UpdateFeatures is refused: %s", error)
        results.append(
            UpdatableFeatureResult(feature=update.feature, error_code=error_code, error_message=message)
        )
    if request.validate_only:
        records = []
    for record in records:
        if isinstance(record, FeatureLevelRecord):
            present = cluster.image.features.get(record.name, 0)
            logger.warning("Feature %s goes from level %d to %d", record.name, present, record.feature_level)
    if len(results) == 1 and results[0].error_code is not ErrorCode.none:
        return _answer([], results[0].error_code, results[0].error_message)
    return _answer(records, ErrorCode.none, None, results)


def _answer(
    records: list[MetadataRecord],
    error_code: ErrorCode,
    message: str | None,
    results: Sequence[UpdatableFeatureResult] = (),
) -> ControllerResult:
    return ControllerResult(
        records,
        unthrottled(
            UpdateFeaturesResponse, error_code=error_code, error_message=message, results=tuple(results)
        ),
    )


def _decide(cluster: ClusterState, update: FeatureUpdateKey) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    present = finalized_features(cluster.image).get(name, 0)
    _check_upgrade_type(update, present)
    if level == present and level > 0:
        return []
    _check_supported(cluster, update)
    if level == present:
        return []
    records: list[MetadataRecord] = []
    if name == ELIGIBLE_LEADER_REPLICAS_FEATURE:
        records += _without_eligible_replicas(cluster, update) if level == 0 else _with_them(cluster)
    return [FeatureLevelRecord(name=name, feature_level=level), *records]


def _check_upgrade_type(update: FeatureUpdateKey, present: int) -> None:
    try:
        upgrade_type = UpgradeType(update.upgrade_type)
    except ValueError:
        raise _invalid(update, "The controller does not support the given upgrade type.") from None
    level = update.max_version_level
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    if level < present and upgrade_type is UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        )
    if level > present and upgrade_type is not UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")


def _check_supported(cluster: ClusterState, update: FeatureUpdateKey) -> None:
    name, level = update.feature, update.max_version_level
    ranges = {"Local controller": advertised_features().get(name)}
    for broker_id, registration in cluster.image.brokers.items():
        served = dict(registration.features).get(name)
        ranges[f"Broker {broker_id}"] = None if served is None else (served.min_level, served.max_level)
    for who, levels in ranges.items():
        lowest, highest = levels or (0, 0)
        if level != 0 and levels is None:
            raise _invalid(update, f"{who} does not support this feature.")
        if not lowest <= level <= highest:
            raise _invalid(update, f"{who} only supports versions {lowest}-{highest}")


def _with_them(cluster: ClusterState) -> list[MetadataRecord]:
    return eligible_replicas_records(cluster.image, cluster.started_with)


def _without_eligible_replicas(cluster: ClusterState, update: FeatureUpdateKey) -> list[MetadataRecord]:
    topics = cluster.image.topics.by_id
    waiting = [
        key
        for key in cluster.topic_index.leaderless
        if not topics[key.topic_id].partitions[key.partition].isr
    ]
    if waiting:
        raise _invalid(
            update,
            f"{len(waiting)} partitions have no replica in sync, and wait for one that is eligible to lead; "
            f"{topics[waiting[0].topic_id].name}-{waiting[0].partition} is one of them.",
        )
    return forget_eligible_replicas(topics.values())


def _invalid(update: FeatureUpdateKey, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_update_version,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}",
    )
