"""Responses to DescribeConfigs.

An entry's source is the origin of its value: the topic, the dynamic configuration of a broker or of all
brokers, the properties, or the default.

Its synonyms are all origins that have a value, the deciding one first. Secrets are never shown.

Source: Kafka's ConfigHelper; KIP-133, KIP-226, KIP-569.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from sparklog.node.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.node.config.client_metrics import CLIENT_METRICS_KEYS
from sparklog.node.config.definition import ConfigKey, ConfigValue
from sparklog.node.config.dynamic import CHANGEABLE_KEYS, with_dynamic
from sparklog.node.config.group_config import GROUP_CONFIG_KEYS, GROUP_CONFIG_SYNONYMS, group_config_value
from sparklog.node.config.keys.ignored_broker_keys import IGNORED_DYNAMIC_KEYS
from sparklog.node.config.topic import TOPIC_KEYS, TOPIC_SYNONYMS, topic_config
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import ResourceType
from sparklog.node.metadata.topic_names import check_topic_name
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError

DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
CLIENT_METRICS_CONFIG: Final = 7
DYNAMIC_GROUP_CONFIG: Final = 8

_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
"""Canonical form only, so that no broker is described more than once."""


async def describe_configs_response(
    image: MetadataImage, broker_config: BrokerConfig, request: Any
) -> DescribeConfigsResponse:
    """Return the response to a DescribeConfigsRequest of version 4; yield after each resource.

    A resource that is named more than once is described once, with the keys of its first occurrence.
    `broker_config` is that of the answering node. One with a `node_id` describes only itself; the
    controller's, which has none, stands for every registered broker. A resource that cannot be described has
    its own error.
    """
    broker_config = with_dynamic(
        broker_config,
        image.broker_configs(None),
        {} if broker_config.node_id is None else image.broker_configs(broker_config.node_id),
    )
    results: dict[tuple[int, str], DescribeConfigsResult] = {}
    described: _Described = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        if key not in results:
            results[key] = _describe(image, broker_config, resource, request, described)
        await turn()
    return unthrottled(DescribeConfigsResponse, results=tuple(results.values()))


_Described = dict[Hashable, tuple[DescribeConfigsResourceResult, ...]]
"""Topics with equal configurations share their description: most of a thousand have."""


def _describe(
    image: MetadataImage, broker_config: BrokerConfig, resource: Any, request: Any, described: _Described
) -> DescribeConfigsResult:
    error_code, error_message = ErrorCode.none, None
    configs: tuple[DescribeConfigsResourceResult, ...] = ()
    try:
        match resource.resource_type:
            case ResourceType.TOPIC:
                configs = _topic_configs(image, broker_config, resource, request, described)
            case ResourceType.BROKER:
                configs = tuple(_broker_entries(image, broker_config, resource, request))
            case ResourceType.GROUP:
                configs = tuple(_group_entries(image, broker_config, resource, request))
            case ResourceType.CLIENT_METRICS:
                configs = tuple(_client_metrics_entries(image, resource, request))
            case other:
                raise KafkaError(ErrorCode.invalid_request, f"resource type {other} cannot be described")
    except KafkaError as error:
        error_code, error_message = error.error_code, error.message
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=error_message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _topic_configs(
    image: MetadataImage, broker_config: BrokerConfig, resource: Any, request: Any, described: _Described
) -> tuple[DescribeConfigsResourceResult, ...]:
    name = resource.resource_name
    check_topic_name(name)
    if name not in image.topics.by_name:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name} does not exist")
    overrides = image.topic_configs(name)
    alike = (frozenset(overrides.items()), resource.configuration_keys)
    configs = described.get(alike)
    if configs is None:
        configs = described[alike] = tuple(_topic_entries(overrides, broker_config, resource, request))
    return configs


def _topic_entries(
    overrides: Mapping[str, str], broker_config: BrokerConfig, resource: Any, request: Any
) -> Iterator[DescribeConfigsResourceResult]:
    config = topic_config(broker_config, overrides)
    for key in _asked_keys(TOPIC_KEYS.values(), resource):
        synonyms = []
        if key.name in overrides:
            synonyms.append(_synonym(key, config.value(key.name), DYNAMIC_TOPIC_CONFIG))
        broker_keys = [BROKER_KEYS[synonym.name] for synonym in TOPIC_SYNONYMS[key.name]]
        synonyms += _broker_synonyms(broker_config, broker_keys)
        yield _entry(key, config.value(key.name), synonyms, request, read_only=False)


def _broker_entries(
    image: MetadataImage, broker_config: BrokerConfig, resource: Any, request: Any
) -> Iterator[DescribeConfigsResourceResult]:
    name = resource.resource_name
    if not name:
        for key in _asked_keys((*BROKER_KEYS.values(), *IGNORED_DYNAMIC_KEYS.values()), resource):
            if key.name in broker_config.dynamic_defaults:
                value = key.parse(broker_config.dynamic_defaults[key.name])
                synonyms = [_synonym(key, value, DYNAMIC_DEFAULT_BROKER_CONFIG)]
                yield _entry(key, value, synonyms, request, read_only=False)
        return
    if not _BROKER_ID.fullmatch(name):
        raise KafkaError(ErrorCode.invalid_request, f"a broker id must be a number, not {name!r}")
    broker_id = int(name)
    if broker_config.node_id is None:
        broker = image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.invalid_request, f"broker {broker_id} is not registered")
        broker_config = with_dynamic(
            broker_config.with_identity(broker_id, broker.rack),
            image.broker_configs(None),
            image.broker_configs(broker_id),
        )
    elif broker_id != broker_config.node_id:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"this is broker {broker_config.node_id}; broker {broker_id} describes itself",
        )
    for key in _asked_keys(BROKER_KEYS.values(), resource):
        synonyms = _broker_synonyms(broker_config, [key])
        read_only = key.name not in CHANGEABLE_KEYS
        yield _entry(key, broker_config.value(key.name), synonyms, request, read_only=read_only)
    # Keys without an effect are not part of a broker's configuration until they are set.
    for key in _asked_keys(IGNORED_DYNAMIC_KEYS.values(), resource):
        text = broker_config.dynamic.get(key.name, broker_config.dynamic_defaults.get(key.name))
        if text is not None:
            synonyms = _broker_synonyms(broker_config, [key])
            yield _entry(key, key.parse(text), synonyms, request, read_only=False)


def _group_entries(
    image: MetadataImage, broker_config: BrokerConfig, resource: Any, request: Any
) -> Iterator[DescribeConfigsResourceResult]:
    if not resource.resource_name:
        raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty.")
    overrides = image.group_configs(resource.resource_name)
    for key in _asked_keys(GROUP_CONFIG_KEYS.values(), resource):
        value = group_config_value(broker_config, overrides, key.name)
        synonyms = []
        if key.name in overrides:
            synonyms.append(_synonym(key, value, DYNAMIC_GROUP_CONFIG))
        if key.name in GROUP_CONFIG_SYNONYMS:
            synonyms += _broker_synonyms(broker_config, [BROKER_KEYS[GROUP_CONFIG_SYNONYMS[key.name]]])
        else:
            synonyms.append(_synonym(key, key.default, DEFAULT_CONFIG))
        yield _entry(key, value, synonyms, request, read_only=False)


def _client_metrics_entries(
    image: MetadataImage, resource: Any, request: Any
) -> Iterator[DescribeConfigsResourceResult]:
    if not resource.resource_name:
        raise KafkaError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
    own = image.configs.get((ResourceType.CLIENT_METRICS, resource.resource_name), {})
    for key in _asked_keys(CLIENT_METRICS_KEYS.values(), resource):
        synonyms = [_synonym(key, key.default, DEFAULT_CONFIG)]
        if key.name in own:
            synonyms.insert(0, _synonym(key, key.parse(own[key.name]), CLIENT_METRICS_CONFIG))
        value = key.parse(own[key.name]) if key.name in own else key.default
        yield _entry(key, value, synonyms, request, read_only=False)


def _asked_keys(keys: Iterable[ConfigKey], resource: Any) -> Iterator[ConfigKey]:
    asked = resource.configuration_keys
    for key in keys:
        if not key.name.startswith("internal.") and (not asked or key.name in asked):
            yield key


def _broker_synonyms(broker_config: BrokerConfig, keys: Iterable[ConfigKey]) -> list[DescribeConfigsSynonym]:
    own, all_brokers, static, default = [], [], [], []
    for key in keys:
        if key.name in broker_config.dynamic:
            value = key.parse(broker_config.dynamic[key.name])
            own.append(_synonym(key, value, DYNAMIC_BROKER_CONFIG))
        if key.name in broker_config.dynamic_defaults:
            value = key.parse(broker_config.dynamic_defaults[key.name])
            all_brokers.append(_synonym(key, value, DYNAMIC_DEFAULT_BROKER_CONFIG))
        if key.name in broker_config.raw:
            static.append(_synonym(key, key.parse(broker_config.raw[key.name]), STATIC_BROKER_CONFIG))
        if key.default is not None:
            default.append(_synonym(key, key.default, DEFAULT_CONFIG))
    return own + all_brokers + static + default


def _synonym(key: ConfigKey, value: ConfigValue, source: int) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=key.name, value=key.format(value), source=source)


def _entry(
    key: ConfigKey,
    value: ConfigValue,
    synonyms: list[DescribeConfigsSynonym],
    request: Any,
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=key.format(value),
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        is_sensitive=key.sensitive,
        synonyms=tuple(synonyms) if request.include_synonyms else (),
        config_type=key.type,
        documentation=key.documentation if request.include_documentation else None,
    )
