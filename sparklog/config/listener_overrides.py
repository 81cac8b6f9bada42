"""What is set for one listener alone: `listener.name.<its name in small letters>.<key>`.

Such a value goes before that of the key itself, for this listener. Only keys about who connects to a listener
and how can be set so: security, and how many connections there are. Source: Kafka's ListenerName,
AbstractConfig.valuesWithPrefixOverride.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from sparklog.config.definition import ConfigError, ConfigKey, find_key

__all__ = ["ListenerKey", "listener_key", "overrides_by_listener"]

_PREFIX: Final = "listener.name."
_OVERRIDABLE: Final = frozenset(
    {"connections.max.reauth.ms", "max.connection.creation.rate", "max.connections"}
)
_OVERRIDABLE_PREFIXES: Final = ("sasl.", "ssl.")


_OF_PLAIN: Final = "plain."
_PLAIN_USERS: Final = f"{_OF_PLAIN}sasl.jaas.config"
"""The mechanism comes before the key in Kafka; only PLAIN has users there."""


class ListenerKey(NamedTuple):
    """A key of one listener."""

    listener_name: str
    """In capitals, as in `listeners`."""
    name: str
    """The key's, without the prefix."""

    def __str__(self) -> str:
        return f"{_PREFIX}{self.listener_name.lower()}.{self.name}"


def listener_key(name: str) -> ListenerKey | None:
    """Return what a key says of a listener; None if it is not about one.

    >>> listener_key("listener.name.outside.ssl.client.auth")
    ListenerKey(listener_name='OUTSIDE', name='ssl.client.auth')
    """
    if not name.startswith(_PREFIX):
        return None
    listener_name, _, key = name.removeprefix(_PREFIX).partition(".")
    return ListenerKey(listener_name.upper(), key.removeprefix(_OF_PLAIN) if key == _PLAIN_USERS else key)


def overrides_by_listener(
    raw: Mapping[str, str],
    keys: Mapping[str, ConfigKey],
    known_to_kafka: Collection[str],
    listener_names: Collection[str],
) -> Mapping[str, Mapping[str, str]]:
    """Return what is set for each listener that something is set for: the texts by key.

    Raises:
        ConfigError: there is no such listener or key, or the key has one value for all listeners.
    """
    overrides: dict[str, dict[str, str]] = {}
    for full_name, text in raw.items():
        found = listener_key(full_name)
        if found is None:
            continue
        if found.listener_name not in listener_names:
            raise ConfigError(full_name, None, f"no listener has the name {found.listener_name} (listeners)")
        find_key(keys, found.name, known_to_kafka, "broker")
        if found.name not in _OVERRIDABLE and not found.name.startswith(_OVERRIDABLE_PREFIXES):
            raise ConfigError(
                full_name, None, f"{found.name} has one value for all listeners: remove the prefix"
            )
        overrides.setdefault(found.listener_name, {})[found.name] = text
    return overrides
