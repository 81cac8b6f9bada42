"""What is set for one listener alone: `listener.name.<its name in small letters>.<key>`.

Such a value goes before that of the key itself, for this listener. What is about one of its mechanisms may be
set for that alone, whose name, in small letters, comes before the key. Only keys about who connects to a
listener and how can be set so: security, and how many connections there are. Source: Kafka's ListenerName,
AbstractConfig.valuesWithPrefixOverride.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from sparklog.config.definition import ConfigError, ConfigKey, find_key
from sparklog.security.sasl.oauthbearer import OAUTHBEARER
from sparklog.security.sasl.password_login import PASSWORD_MECHANISMS

_PREFIX: Final = "listener.name."
_OVERRIDABLE: Final = frozenset(
    {"connections.max.reauth.ms", "max.connection.creation.rate", "max.connections"}
)
_OVERRIDABLE_PREFIXES: Final = ("sasl.", "ssl.")
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER)
"""By which clients may say who they are."""
_MECHANISM_PREFIXES: Final = tuple(f"{mechanism.lower()}." for mechanism in MECHANISMS)
_OF_MECHANISM: Final = frozenset(
    {"connections.max.reauth.ms", "sasl.jaas.config", "sasl.server.callback.handler.class"}
)
_OF_MECHANISM_PREFIX: Final = "sasl.oauthbearer."


class ListenerKey(NamedTuple):
    """A key of one listener."""

    listener_name: str
    """In capitals, as in `listeners`."""
    name: str
    """The key's, without the prefix."""
    mechanism: str = ""
    """The mechanism that it is set for alone, in small letters and with the dot behind it; else empty."""

    def __str__(self) -> str:
        return f"{_PREFIX}{self.listener_name.lower()}.{self.mechanism}{self.name}"


def listener_key(name: str) -> ListenerKey | None:
    """Return what a key says of a listener; None if it is not about one.

    >>> listener_key("listener.name.outside.ssl.client.auth")
    ListenerKey(listener_name='OUTSIDE', name='ssl.client.auth', mechanism='')
    >>> listener_key("listener.name.outside.plain.sasl.jaas.config")
    ListenerKey(listener_name='OUTSIDE', name='sasl.jaas.config', mechanism='plain.')
    """
    if not name.startswith(_PREFIX):
        return None
    listener_name, _, key = name.removeprefix(_PREFIX).partition(".")
    mechanism = next(filter(key.startswith, _MECHANISM_PREFIXES), "")
    return ListenerKey(listener_name.upper(), key.removeprefix(mechanism), mechanism)


def overrides_by_listener(
    raw: Mapping[str, str],
    keys: Mapping[str, ConfigKey],
    known_to_kafka: Collection[str],
    listener_names: Collection[str],
) -> Mapping[str, Mapping[str, str]]:
    """Return what is set for each listener that something is set for: the texts by key.

    What is set for a mechanism alone has the mechanism before its key.

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
        if found.mechanism and not (
            found.name in _OF_MECHANISM or found.name.startswith(_OF_MECHANISM_PREFIX)
        ):
            raise ConfigError(full_name, None, f"{found.name} is the same for all mechanisms of a listener")
        overrides.setdefault(found.listener_name, {})[f"{found.mechanism}{found.name}"] = text
    return overrides
