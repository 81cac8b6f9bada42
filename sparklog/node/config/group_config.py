"""The configuration of single groups (KIP-848), which wins over the brokers': the resource type GROUP.

The keys of share and streams groups are kept and described, though no such groups exist here: configuration
taken over from Kafka is accepted, and malformed values are refused. Kafka checks those keys against broker
keys that do not exist here; the defaults of these are the limits.

Source: Kafka 4.3's GroupConfig.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from sparklog.node.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.node.config.definition import ConfigError, ConfigKey, ConfigValue, Rule
from sparklog.node.config.key_table import read_keys
from sparklog.protocol.errors import ErrorCode, KafkaError

_RESET: Final = "share.auto.offset.reset"
_AUTO_OFFSET_RESET: Final = re.compile(
    r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?"
)

_RESET_RULE: Final = Rule(
    "latest, earliest, or by_duration: and a duration",
    lambda value: _AUTO_OFFSET_RESET.fullmatch(value) is not None,
)
_ROWS: Final = read_keys("group.toml")

GROUP_CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    _ROWS | {_RESET: replace(_ROWS[_RESET], rule=_RESET_RULE)}
)

GROUP_CONFIG_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"group.{name}" for name in _ROWS if name.startswith("consumer.")}
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
