"""Keys of one listener: `listener.name.<its name in lower case>.<key>`.

Such a value wins over that of the key itself, for this listener. A key of a SASL mechanism may be set for
that mechanism alone, whose name, in lower case, precedes the key. Only keys of security and connection limits
can be set for a listener. Source: Kafka's ListenerName, AbstractConfig.valuesWithPrefixOverride.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from sparklog.node.config.definition import ConfigError, ConfigKey, find_key
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER
from sparklog.node.security.sasl.password_login import PASSWORD_MECHANISMS

_PREFIX: Final = "listener.name."
_OVERRIDABLE: Final = frozenset(
    {"connections.max.reauth.ms", "max.connection.creation.rate", "max.connections"}
)
_OVERRIDABLE_PREFIXES: Final = ("sasl.", "ssl.")
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER)
"""The SASL mechanisms that clients may authenticate with."""
_MECHANISM_PREFIXES: Final = tuple(f"{mechanism.lower()}." for mechanism in MECHANISMS)
_OF_MECHANISM: Final = frozenset(
    {"connections.max.reauth.ms", "sasl.jaas.config", "sasl.server.callback.handler.class"}
)
_OF_MECHANISM_PREFIX: Final = "sasl.oauthbearer."


class ListenerKey(NamedTuple):
    listener_name: str
    """In upper case, as in `listeners`."""
    name: str
    """Without the prefix."""
    mechanism: str = ""
    """The only mechanism that the key is for, in lower case with its dot; else empty."""

    def __str__(self) -> str:
        return f"{_PREFIX}{self.listener_name.lower()}.{self.mechanism}{self.name}"


def listener_key(name: str) -> ListenerKey | None:
    """Return a listener's key in its parts; None if the key is not a listener's.

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
    """Return the texts by key, for each listener that has keys of its own.

    A key of one mechanism begins with the mechanism.

    Raises:
        ConfigError: the listener or key does not exist, or the key has one value for all listeners.
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
