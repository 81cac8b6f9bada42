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
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sparklog.node.config.definition import ConfigKey, Rule
from sparklog.node.config.key_table import read_keys

_SERVED_PROTOCOLS: Final = frozenset({"classic", "consumer"})
_PROTOCOLS: Final = _SERVED_PROTOCOLS | {"share", "streams"}

_RULES: Final = {
    "group.coordinator.rebalance.protocols": Rule(
        "with classic and consumer, which are always served, and besides them nothing but streams and share, "
        "none of them twice",
        lambda names: len(set(names)) == len(names) and _SERVED_PROTOCOLS <= set(names) <= _PROTOCOLS,
    ),
    "group.share.assignors": Rule(
        "at least one, none of them twice", lambda names: 0 < len(names) == len(set(names))
    ),
}

IGNORED_GROUP_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        name: replace(key, rule=_RULES.get(name, key.rule))
        for name, key in read_keys("ignored_groups.toml").items()
    }
)
"""With Kafka's types, limits and defaults."""
