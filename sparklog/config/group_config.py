"""The configuration a group may have for itself, in place of the brokers' (KIP-848): the resource type GROUP.

Of Kafka's keys those of the consumer protocol; share and streams groups are not here, nor are their keys.

Source: Kafka 4.3's GroupConfig.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from sparklog.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.config.definition import ConfigError, ConfigKey, ConfigType, at_least
from sparklog.errors import ErrorCode, KafkaError

__all__ = ["GROUP_CONFIG_KEYS", "GROUP_CONFIG_SYNONYMS", "check_group_config", "group_config_value"]

_KEYS: Final = (
    ConfigKey(
        "consumer.session.timeout.ms",
        ConfigType.INT,
        45000,
        "After which silence a member of the consumer group is removed.",
        at_least(1),
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        ConfigType.INT,
        5000,
        "How often members of the consumer group are told to send heartbeats.",
        at_least(1),
    ),
    ConfigKey(
        "consumer.assignment.interval.ms",
        ConfigType.INT,
        1000,
        "How much time lies between two assignments of the consumer group, at least.",
        at_least(0),
    ),
)

GROUP_CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})
"""The keys that this system honours, by name."""

GROUP_CONFIG_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {key.name: f"group.{key.name}" for key in _KEYS}
)
"""The broker's key that holds where a group has none of its own."""

_KAFKA_KEY_NAMES: Final = """
consumer.assignor.offload.enable share.assignment.interval.ms share.assignor.offload.enable
share.auto.offset.reset share.delivery.count.limit share.heartbeat.interval.ms share.isolation.level
share.partition.max.record.locks share.record.lock.duration.ms share.renew.acknowledge.enable
share.session.timeout.ms streams.assignment.interval.ms streams.assignor.offload.enable
streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms streams.num.standby.replicas
streams.session.timeout.ms
"""
_KAFKA_KEYS: Final = frozenset(_KAFKA_KEY_NAMES.split())
"""Kafka's others."""


def group_config_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    """Return what holds for a group of these values of its own.

    Raises:
        ConfigError: its value is none.
    """
    key = GROUP_CONFIG_KEYS[name]
    value = key.parse(overrides[name]) if name in overrides else config.value(GROUP_CONFIG_SYNONYMS[name])
    assert isinstance(value, int), name
    return value


def check_group_config(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """See that a group may be given these values.

    Raises:
        ConfigError: an unknown key, or a malformed value.
        KafkaError: INVALID_CONFIG for a value beyond the brokers' limits, or a contradiction.
    """
    for name in overrides:
        if name in _KAFKA_KEYS:
            raise ConfigError(
                name, None, "Kafka has this group configuration, this system does not; remove it"
            )
        if name not in GROUP_CONFIG_KEYS:
            raise ConfigError(name, None, f"Unknown group config name: {name}")
    for reason in _contradictions(config, overrides):
        raise KafkaError(ErrorCode.invalid_config, reason)


def _contradictions(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[str]:
    values = {name: group_config_value(config, overrides, name) for name in GROUP_CONFIG_KEYS}
    for name, value in values.items():
        if name not in overrides:
            continue
        prefix, _, rest = name.partition(".")
        least, most = f"group.{prefix}.min.{rest}", f"group.{prefix}.max.{rest}"
        if value < config.value(least):
            yield f"{name} must be greater than or equal to {least}"
        if value > config.value(most):
            yield f"{name} must be less than or equal to {most}"
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        yield "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"


assert set(GROUP_CONFIG_SYNONYMS.values()) <= set(BROKER_KEYS), "each has a broker's key behind it"
