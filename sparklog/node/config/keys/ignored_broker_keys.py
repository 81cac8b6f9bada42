"""Kafka's dynamic broker keys that have no effect here.

Clients and tools set them as a matter of course, so they are accepted: checked by Kafka's definitions, kept,
and described once they are set. Some name a class or a file that a broker would load or obey for security or
placement; of these only the value is accepted under which Kafka's brokers behave like these. A properties
file may not contain any of them, since there they can be left out.

Source: Kafka 4.3.1's DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS, with the definitions of AbstractKafkaConfig;
`tests/compat/test_config_keys.py` compares the two.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sparklog.node.config.definition import ConfigKey, Rule
from sparklog.node.config.key_table import read_keys
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS

_OF_ALL_BROKERS: Final = read_keys("ignored_all_brokers.toml")
_OF_ONE_BROKER: Final = read_keys("ignored_one_broker.toml")
_OF_GROUPS: Final = (
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
)

_WITH_ONE_VALUE: Final = (
    "config.providers",
    "cordoned.log.dirs",
    "metric.reporters",
    "principal.builder.class",
    "ssl.engine.factory.class",
)
"""The keys whose default is all there is here."""


def _only_its_default(key: ConfigKey) -> ConfigKey:
    shown = ",".join(key.default) if isinstance(key.default, tuple) else key.default
    rule = Rule(f"{shown!r}, for there is nothing else here", lambda given: given == key.default)
    return replace(key, rule=rule)


IGNORED_DYNAMIC_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        name: _only_its_default(key) if name in _WITH_ONE_VALUE else key
        for name, key in (_OF_ALL_BROKERS | _OF_ONE_BROKER).items()
    }
    | {name: IGNORED_GROUP_KEYS[name] for name in _OF_GROUPS}
)
"""With Kafka's types, limits and defaults."""

OF_ONE_BROKER: Final = frozenset(_OF_ONE_BROKER)
"""The keys that Kafka allows for single brokers only."""

THREAD_COUNTS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
"""Numbers of threads, which one change may halve or double at most, as in Kafka."""
