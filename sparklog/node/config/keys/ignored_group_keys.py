"""Keys of Kafka's group coordinator that are accepted without an effect.

A file that works with Kafka's brokers works here: its values are checked as Kafka checks a single key, and
then ignored. These keys are not attributes of `BrokerConfig`, are not described, and cannot change while
brokers run. A key may be here for two reasons only:

- it tunes a mechanism of Kafka's coordinator that does not exist here;
- it is for share groups or streams groups, which do not exist here.

Source: Kafka 4.3.1's GroupCoordinatorConfig and ShareGroupConfig, with the keys that Kafka's documentation
leaves out. The three `assignor.offload.enable` are named there and not yet defined; Kafka accepts unknown
keys.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.node.config.definition import (
    INT_MAX,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Rule,
    at_least,
    between,
)

WITHOUT_EFFECT: Final = "Taken from Kafka's files, without effect:"

_SERVED_PROTOCOLS: Final = frozenset({"classic", "consumer"})
_PROTOCOLS: Final = _SERVED_PROTOCOLS | {"share", "streams"}


def _kept(
    name: str, config_type: ConfigType, default: ConfigValue, because: str, rule: Rule | None = None
) -> ConfigKey:
    return ConfigKey(name, config_type, default, f"{WITHOUT_EFFECT} {because}.", rule)


def _of_share_groups(
    name: str, default: ConfigValue, rule: Rule | None = None, config_type: ConfigType = ConfigType.INT
) -> ConfigKey:
    return _kept(f"group.share.{name}", config_type, default, "there are no share groups", rule)


def _of_streams_groups(
    name: str, default: ConfigValue, rule: Rule | None = None, config_type: ConfigType = ConfigType.INT
) -> ConfigKey:
    return _kept(f"group.streams.{name}", config_type, default, "there are no streams groups", rule)


_KEYS: Final = (
    _kept(
        "group.coordinator.rebalance.protocols",
        ConfigType.LIST,
        ("classic", "consumer", "streams"),
        "the classic protocol and the consumer protocol are always served, the others never",
        Rule(
            "with classic and consumer, which are always served, and besides them nothing but streams and"
            " share, none of them twice",
            lambda names: len(set(names)) == len(names) and _SERVED_PROTOCOLS <= set(names) <= _PROTOCOLS,
        ),
    ),
    _kept(
        "group.coordinator.threads",
        ConfigType.INT,
        4,
        "groups are coordinated on the broker's event loop",
        at_least(1),
    ),
    _kept(
        "group.coordinator.background.threads",
        ConfigType.INT,
        2,
        "large groups are assigned, and regular expressions read, in the broker's own threads",
        at_least(1),
    ),
    _kept(
        "group.coordinator.append.linger.ms",
        ConfigType.INT,
        -1,
        "records are written at once, without waiting for more",
        at_least(-1),
    ),
    _kept(
        "group.coordinator.cached.buffer.max.bytes",
        ConfigType.INT,
        1048588,
        "buffers are not kept to be used again",
        at_least(524288),
    ),
    _kept(
        "group.consumer.assignor.offload.enable",
        ConfigType.BOOLEAN,
        True,
        "the size of a group decides whether its assignment is computed off the event loop",
    ),
    _of_share_groups(
        "assignors",
        ("simple",),
        Rule("at least one, none of them twice", lambda names: 0 < len(names) == len(set(names))),
        ConfigType.LIST,
    ),
    _of_share_groups("assignor.offload.enable", True, config_type=ConfigType.BOOLEAN),
    _of_share_groups(
        "persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        config_type=ConfigType.STRING,
    ),
    _of_share_groups("assignment.interval.ms", 1000, at_least(0)),
    _of_share_groups("min.assignment.interval.ms", 0, at_least(0)),
    _of_share_groups("max.assignment.interval.ms", 15000, at_least(0)),
    _of_share_groups("delivery.count.limit", 5, between(2, 10)),
    _of_share_groups("min.delivery.count.limit", 2, between(2, 5)),
    _of_share_groups("max.delivery.count.limit", 10, between(5, 25)),
    _of_share_groups("heartbeat.interval.ms", 5000, at_least(1)),
    _of_share_groups("min.heartbeat.interval.ms", 5000, at_least(1)),
    _of_share_groups("max.heartbeat.interval.ms", 15000, at_least(1)),
    _of_share_groups("initialize.retry.interval.ms", 30000, at_least(1)),
    _of_share_groups("max.share.sessions", 2000, at_least(1)),
    _of_share_groups("max.size", 200, between(1, 1000)),
    _of_share_groups("partition.max.record.locks", 2000, between(100, 10000)),
    _of_share_groups("min.partition.max.record.locks", 100, between(100, 2000)),
    _of_share_groups("max.partition.max.record.locks", 4000, between(2000, 10000)),
    _of_share_groups("record.lock.duration.ms", 30000, between(1000, 3600000)),
    _of_share_groups("min.record.lock.duration.ms", 15000, between(1000, 30000)),
    _of_share_groups("max.record.lock.duration.ms", 60000, between(30000, 3600000)),
    _of_share_groups("session.timeout.ms", 45000, at_least(1)),
    _of_share_groups("min.session.timeout.ms", 45000, at_least(1)),
    _of_share_groups("max.session.timeout.ms", 60000, at_least(1)),
    _of_streams_groups("assignor.offload.enable", True, config_type=ConfigType.BOOLEAN),
    _of_streams_groups("assignment.interval.ms", 1000, at_least(0)),
    _of_streams_groups("min.assignment.interval.ms", 0, at_least(0)),
    _of_streams_groups("max.assignment.interval.ms", 15000, at_least(0)),
    _of_streams_groups("heartbeat.interval.ms", 5000, at_least(1)),
    _of_streams_groups("min.heartbeat.interval.ms", 5000, at_least(1)),
    _of_streams_groups("max.heartbeat.interval.ms", 15000, at_least(1)),
    _of_streams_groups("initial.rebalance.delay.ms", 3000, at_least(0)),
    _of_streams_groups("max.size", INT_MAX, at_least(1)),
    _of_streams_groups("num.standby.replicas", 0, at_least(0)),
    _of_streams_groups("max.standby.replicas", 2, at_least(0)),
    _of_streams_groups("session.timeout.ms", 45000, at_least(1)),
    _of_streams_groups("min.session.timeout.ms", 45000, at_least(1)),
    _of_streams_groups("max.session.timeout.ms", 60000, at_least(1)),
)

IGNORED_GROUP_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})
"""With Kafka's types, limits and defaults."""
