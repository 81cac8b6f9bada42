"""IncrementalAlterConfigs and AlterConfigs: the configuration of topics, brokers and groups at run time.

A resource is changed whole or not at all: its new values must make a valid configuration together.
`sparklog.node.config.dynamic` has the keys that brokers apply at run time; a broker without a name stands for
all.

Source: Kafka's ConfigAdminManager and ControllerConfigurationValidator.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse as AlteredResource
from kio.schema.alter_configs.v2.response import AlterConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse as IncrementallyAlteredResource,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse

from sparklog.driver.controller.machine.cluster_state import MIN_IN_SYNC_REPLICAS, ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.eligible_replicas import forget_eligible_replicas, topics_by_default
from sparklog.driver.controller.machine.requests.cluster_size import SIZE_KEYS, check_size
from sparklog.driver.controller.machine.requests.table_names import TableNames
from sparklog.node.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigKey,
    ConfigType,
    checked_topic_config,
    topic_config,
)
from sparklog.node.config.client_metrics import CLIENT_METRICS_KEYS, checked_client_metrics
from sparklog.node.config.dynamic import CHANGEABLE_KEYS, check_dynamic, with_dynamic
from sparklog.node.config.group_config import GROUP_CONFIG_KEYS, check_group_config
from sparklog.node.config.keys.table_keys import TABLE_ENABLE, TABLE_NAME
from sparklog.node.metadata.schemas import ConfigRecord, MetadataRecord, ResourceType
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)

_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_KEYS: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: {**BROKER_KEYS, **CHANGEABLE_KEYS},
    ResourceType.GROUP: GROUP_CONFIG_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
MAX_VALUE_BYTES = 2**15 - 1
"""As in Kafka."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(
    cluster: ClusterState, request: IncrementalAlterConfigsRequest
) -> ControllerResult:
    def new_values(resource: Any, old: Mapping[str, str]) -> dict[str, str]:
        values = dict(old)
        for config in resource.configs:
            value = _apply(cluster, resource.resource_type, config, values.get(config.name))
            if value is None:
                values.pop(config.name, None)
            else:
                values[config.name] = value
        return values

    records, answers = _alter(
        cluster, request.resources, request.validate_only, new_values, IncrementallyAlteredResource
    )
    return ControllerResult(records, unthrottled(IncrementalAlterConfigsResponse, responses=answers))


def alter_configs(cluster: ClusterState, request: AlterConfigsRequest) -> ControllerResult:
    """Answer AlterConfigs, the older form: keys that are not named return to their defaults."""

    def new_values(resource: Any, old: Mapping[str, str]) -> dict[str, str]:
        missing = [config.name for config in resource.configs if config.value is None]
        if missing:
            raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {','.join(missing)}")
        # A key that cannot be changed at run time is not removed either, and a size is only changed by name.
        is_broker = resource.resource_type == ResourceType.BROKER
        kept = {
            key: value
            for key, value in old.items()
            if is_broker and (key not in CHANGEABLE_KEYS or key in SIZE_KEYS)
        }
        return kept | {config.name: config.value for config in resource.configs}

    records, answers = _alter(cluster, request.resources, request.validate_only, new_values, AlteredResource)
    return ControllerResult(records, unthrottled(AlterConfigsResponse, responses=answers))


_Answer = TypeVar("_Answer")


def _alter(
    cluster: ClusterState,
    resources: Sequence[Any],
    validate_only: bool,
    new_values: Callable[[Any, Mapping[str, str]], dict[str, str]],
    answer_type: Callable[..., _Answer],
) -> tuple[list[MetadataRecord], tuple[_Answer, ...]]:
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    records: list[MetadataRecord] = []
    answers = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        error_code, message = ErrorCode.none, None
        try:
            if times_named[key] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            changed = _resource_records(cluster, resource, new_values)
            if changed and not validate_only:
                records += changed
                _log_changes(resource, changed)
        except KafkaError as error:
            error_code, message = error.error_code, error.message
        answers.append(
            answer_type(
                error_code=error_code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return records, tuple(answers)


def _resource_records(
    cluster: ClusterState, resource: Any, new_values: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> list[MetadataRecord]:
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic_records(cluster, resource, new_values)
        case ResourceType.BROKER:
            return _broker_records(cluster, resource, new_values)
        case ResourceType.GROUP:
            return _group_records(cluster, resource, new_values)
        case ResourceType.CLIENT_METRICS:
            return _client_metrics_records(cluster, resource, new_values)
        case other:
            raise KafkaError(
                ErrorCode.invalid_request,
                "Only the configuration of topics, brokers, groups and client metrics can be changed, not "
                f"that of resource type {other}.",
            )


def _group_records(
    cluster: ClusterState, resource: Any, new_values: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> list[MetadataRecord]:
    name = resource.resource_name
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    # A group need not exist, as in Kafka: its configuration may be set before its first member joins.
    old = cluster.image.group_configs(name)
    new = _checked(resource, new_values(resource, old))
    check_group_config(cluster.config, new)
    return list(_changes(resource, old, new))


def _client_metrics_records(
    cluster: ClusterState, resource: Any, new_values: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> list[MetadataRecord]:
    key = (ResourceType.CLIENT_METRICS, resource.resource_name)
    old = cluster.image.configs.get(key, {})
    new = _checked(resource, new_values(resource, old))
    checked_client_metrics(resource.resource_name, new)
    return list(_changes(resource, old, new))


def _broker_records(
    cluster: ClusterState, resource: Any, new_values: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> list[MetadataRecord]:
    name = resource.resource_name
    broker_id = None
    if name:
        if not _BROKER_ID.fullmatch(name):
            raise KafkaError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
        broker_id = int(name)
        if broker_id not in cluster.image.brokers:
            raise KafkaError(ErrorCode.invalid_request, f"Broker {broker_id} is not registered.")
    old = cluster.image.broker_configs(broker_id)
    new = _checked(resource, new_values(resource, old))
    changes = _changes(resource, old, new)
    of_all = cluster.image.broker_configs(None)
    try:
        if broker_id is None:
            wanted = with_dynamic(cluster.started_with, new, {})
        else:
            wanted = with_dynamic(cluster.started_with, of_all, new)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_request, error.message) from error
    changed = {record.name: record.value for record in changes}
    obeyed = cluster.config if broker_id is None else with_dynamic(cluster.started_with, of_all, old)
    check_dynamic(obeyed, wanted, changed, of_all_brokers=broker_id is None)
    if not SIZE_KEYS.isdisjoint(changed):
        check_size(cluster, wanted, changed)
    records: list[MetadataRecord] = list(changes)
    if MIN_IN_SYNC_REPLICAS in changed and cluster.has_eligible_leader_replicas:
        _check_min_in_sync_replicas(broker_id, changed[MIN_IN_SYNC_REPLICAS])
        if wanted.min_insync_replicas != obeyed.min_insync_replicas:
            records += forget_eligible_replicas(topics_by_default(cluster.image))
    return records


def _check_min_in_sync_replicas(broker_id: BrokerId | None, value: str | None) -> None:
    """Refuse the same as Kafka while there are eligible leader replicas: all must share one minimum."""
    if broker_id is not None:
        raise KafkaError(
            ErrorCode.invalid_config,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if value is None:
        raise KafkaError(
            ErrorCode.invalid_config,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


def _topic_records(
    cluster: ClusterState, resource: Any, new_values: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> list[MetadataRecord]:
    name = resource.resource_name
    if name not in cluster.image.topics.by_name:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    old = cluster.image.topic_configs(name)
    new = _checked(resource, new_values(resource, old))
    config = checked_topic_config(cluster.config, new, old)
    if any(key in (TABLE_ENABLE, TABLE_NAME) for key in new):
        TableNames(cluster.config, cluster.image).take(name, config)
    changes = _changes(resource, old, new)
    records: list[MetadataRecord] = list(changes)
    changed = {record.name for record in changes}
    if MIN_IN_SYNC_REPLICAS in changed and cluster.has_eligible_leader_replicas:
        records += forget_eligible_replicas([cluster.image.topics.by_name[name]])
    return records


def _checked(resource: Any, new: dict[str, str]) -> dict[str, str]:
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    for key, value in new.items():
        if len(value.encode()) > MAX_VALUE_BYTES:
            raise KafkaError(
                ErrorCode.invalid_config, f"{key}: the value is longer than {MAX_VALUE_BYTES} bytes"
            )
    return new


def _changes(resource: Any, old: Mapping[str, str], new: Mapping[str, str]) -> list[ConfigRecord]:
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return [
        ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            name=key,
            value=new.get(key),
        )
        for key in changed
    ]


def _log_changes(resource: Any, records: Sequence[MetadataRecord]) -> None:
    changes = {record.name: record.value for record in records if isinstance(record, ConfigRecord)}
    kind = ResourceType(resource.resource_type).name.lower()
    logger.info("Configuration of %s %s changes: %s", kind, resource.resource_name or "<default>", changes)


def _apply(cluster: ClusterState, resource_type: int, config: AlterableConfig, old: str | None) -> str | None:
    """Return the key's value after one incremental change; `None` removes it."""
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.invalid_request, f"Unknown operation {config.config_operation} on {config.name}"
        ) from None
    if operation is Operation.DELETE:
        return None
    if config.value is None:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {config.name}")
    if operation is Operation.SET:
        return str(config.value)
    is_topic = resource_type == ResourceType.TOPIC
    key = _KEYS.get(resource_type, {}).get(config.name)
    if key is not None and key.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Can't {operation.name} to key {config.name} because its type is not LIST.",
        )
    if old is None and key is not None and resource_type in (ResourceType.TOPIC, ResourceType.BROKER):
        whole = topic_config(cluster.config, {}) if is_topic else cluster.config
        is_obeyed = is_topic or config.name in BROKER_KEYS
        old = key.format(whole.value(config.name) if is_obeyed else key.default)
    items = [item for item in (old or "").split(",") if item]
    named = [item for item in config.value.split(",") if item]
    if operation is Operation.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
