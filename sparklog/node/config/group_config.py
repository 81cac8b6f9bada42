"""The configuration of single groups (KIP-848), which wins over the brokers': the resource type GROUP.

The keys of share and streams groups are kept and described, though no such groups exist here: configuration
taken over from Kafka is accepted, and malformed values are refused. Kafka checks those keys against broker
keys that do not exist here; the defaults of these are the limits.

Source: Kafka 4.3's GroupConfig.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from sparklog.node.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.node.config.definition import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Rule,
    at_least,
    between,
    one_of,
)
from sparklog.protocol.errors import ErrorCode, KafkaError

_AUTO_OFFSET_RESET: Final = re.compile(
    r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?"
)

_HONOURED_KEYS: Final = (
    ConfigKey(
        "consumer.session.timeout.ms",
        ConfigType.INT,
        45000,
        "The silence after which a member of the consumer group is removed.",
        at_least(1),
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        ConfigType.INT,
        5000,
        "The heartbeat interval that the coordinator gives to members of the consumer group.",
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

_IGNORED_KEYS: Final = (
    ConfigKey(
        "share.session.timeout.ms",
        ConfigType.INT,
        45000,
        "The silence after which a member of the share group is removed.",
        between(45000, 60000),
    ),
    ConfigKey(
        "share.heartbeat.interval.ms",
        ConfigType.INT,
        5000,
        "The heartbeat interval that the coordinator gives to members of the share group.",
        between(5000, 15000),
    ),
    ConfigKey(
        "share.record.lock.duration.ms",
        ConfigType.INT,
        30000,
        "How long a record of the share group is locked for its member.",
        between(15000, 60000),
    ),
    ConfigKey(
        "share.delivery.count.limit",
        ConfigType.INT,
        5,
        "How often a record is delivered to the share group, at most.",
        between(2, 10),
    ),
    ConfigKey(
        "share.partition.max.record.locks",
        ConfigType.INT,
        2000,
        "How many records of a partition are locked for the share group, at most.",
        between(100, 4000),
    ),
    ConfigKey(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        "Where the share group begins with a partition.",
        Rule(
            "latest, earliest, or by_duration: and a duration",
            lambda value: bool(_AUTO_OFFSET_RESET.fullmatch(value)),
        ),
    ),
    ConfigKey(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        "Whether the share group sees records of open and aborted transactions.",
        one_of("read_committed", "read_uncommitted"),
    ),
    ConfigKey(
        "share.renew.acknowledge.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether members of the share group may renew their locks.",
    ),
    ConfigKey(
        "share.assignment.interval.ms",
        ConfigType.INT,
        1000,
        "How much time lies between two assignments of the share group, at least.",
        between(0, 15000),
    ),
    ConfigKey(
        "streams.session.timeout.ms",
        ConfigType.INT,
        45000,
        "The silence after which a member of the streams group is removed.",
        between(45000, 60000),
    ),
    ConfigKey(
        "streams.heartbeat.interval.ms",
        ConfigType.INT,
        5000,
        "The heartbeat interval that the coordinator gives to members of the streams group.",
        between(5000, 15000),
    ),
    ConfigKey(
        "streams.num.standby.replicas",
        ConfigType.INT,
        0,
        "How many standby replicas a task of the streams group has.",
        between(0, 2),
    ),
    ConfigKey(
        "streams.initial.rebalance.delay.ms",
        ConfigType.INT,
        3000,
        "How long the first rebalance of the streams group waits for more members.",
        at_least(0),
    ),
    ConfigKey(
        "streams.assignment.interval.ms",
        ConfigType.INT,
        1000,
        "How much time lies between two assignments of the streams group, at least.",
        between(0, 15000),
    ),
)

GROUP_CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {key.name: key for key in (*_HONOURED_KEYS, *_IGNORED_KEYS)}
)

GROUP_CONFIG_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {key.name: f"group.{key.name}" for key in _HONOURED_KEYS}
)
"""The broker key behind each honoured key of a group."""


def group_config_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> ConfigValue:
    """Return the value in force for a group with these overrides.

    Raises:
        ConfigError: the override is malformed.
    """
    key = GROUP_CONFIG_KEYS[name]
    if name in overrides:
        return key.parse(overrides[name])
    return config.value(GROUP_CONFIG_SYNONYMS[name]) if name in GROUP_CONFIG_SYNONYMS else key.default


def check_group_config(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check the overrides of a group.

    Raises:
        ConfigError: an unknown key, or a malformed value.
        KafkaError: INVALID_CONFIG for a value beyond the brokers' limits, or a contradiction.
    """
    for name in overrides:
        if name not in GROUP_CONFIG_KEYS:
            raise ConfigError(name, None, f"Unknown group config name: {name}")
    for reason in _contradictions(config, overrides):
        raise KafkaError(ErrorCode.invalid_config, reason)


def _contradictions(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[str]:
    values: dict[str, Any] = {name: group_config_value(config, overrides, name) for name in GROUP_CONFIG_KEYS}
    for name in GROUP_CONFIG_SYNONYMS:
        if name not in overrides:
            continue
        prefix, _, rest = name.partition(".")
        least, most = f"group.{prefix}.min.{rest}", f"group.{prefix}.max.{rest}"
        if values[name] < config.value(least):
            yield f"{name} must be greater than or equal to {least}"
        if values[name] > config.value(most):
            yield f"{name} must be less than or equal to {most}"
    for prefix in ("consumer", "share", "streams"):
        session, heartbeat = f"{prefix}.session.timeout.ms", f"{prefix}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            yield f"{session} must be greater than {heartbeat}"


assert set(GROUP_CONFIG_SYNONYMS.values()) <= set(BROKER_KEYS), "each has a broker's key behind it"
