"""Kafka's dynamic broker keys that have no effect here.

Clients and tools set them as a matter of course, so they are accepted: checked by Kafka's definitions, kept,
and described once they are set. Some name a class or a file that a broker would load or obey for security or
placement; of these only the value is accepted under which Kafka's brokers behave like these. A properties
file may not contain any of them, since there they can be left out.

Source: Kafka 4.3.1's DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS, with the definitions of AbstractKafkaConfig;
`tests/compat/test_config_keys.py` compares the two.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.node.config.definition import ConfigKey, ConfigType, ConfigValue, Rule, at_least
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS, WITHOUT_EFFECT

_BOOLEAN, _STRING, _INT, _SHORT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT
_LONG, _DOUBLE, _LIST, _CLASS = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS


def _only(value: ConfigValue) -> Rule:
    shown = ",".join(value) if isinstance(value, tuple) else value
    return Rule(f"{shown!r}, for there is nothing else here", lambda given: given == value)


_NO_THREADS: Final = "requests are answered on an event loop"
_NO_TIER_THREADS: Final = "copying, reads and deletions of the tier share a few threads"
_NO_KERBEROS: Final = "there is no GSSAPI"
_NO_LOGIN: Final = "brokers have no login of their own to be refreshed"
_NO_PROVIDER: Final = "TLS is OpenSSL's"
_NO_CLASSES: Final = "no classes are loaded"
_NO_SHARE_GROUPS: Final = "there are no share groups"
_DEFAULT_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"

_FOR_ALL_BROKERS: Final = (
    ("config.providers", _LIST, (), _only(()), _NO_CLASSES),
    ("log.preallocate", _BOOLEAN, False, None, "segment files grow as they are written"),
    ("metric.reporters", _LIST, (_JMX_REPORTER,), _only((_JMX_REPORTER,)), _NO_CLASSES),
    ("num.io.threads", _INT, 8, at_least(1), _NO_THREADS),
    ("num.network.threads", _INT, 3, at_least(1), _NO_THREADS),
    (
        "remote.log.index.file.cache.total.size.bytes",
        _LONG,
        1073741824,
        at_least(1),
        "the tier's objects are their own indexes: see sparklog.remote.cache.bytes",
    ),
    ("remote.log.manager.copier.thread.pool.size", _INT, 10, at_least(1), _NO_TIER_THREADS),
    ("remote.log.manager.expiration.thread.pool.size", _INT, 10, at_least(1), _NO_TIER_THREADS),
    ("remote.log.manager.follower.thread.pool.size", _INT, 2, at_least(1), _NO_TIER_THREADS),
    ("remote.log.reader.threads", _INT, 10, at_least(1), _NO_TIER_THREADS),
    ("share.coordinator.cached.buffer.max.bytes", _INT, 1048588, at_least(524288), _NO_SHARE_GROUPS),
)
_FOR_ONE_BROKER: Final = (
    ("cordoned.log.dirs", _LIST, (), _only(()), "directories cannot be cordoned"),
    ("principal.builder.class", _CLASS, _DEFAULT_BUILDER, _only(_DEFAULT_BUILDER), _NO_CLASSES),
    ("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", None, _NO_KERBEROS),
    ("sasl.kerberos.min.time.before.relogin", _LONG, 60000, None, _NO_KERBEROS),
    ("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), None, _NO_KERBEROS),
    ("sasl.kerberos.service.name", _STRING, None, None, _NO_KERBEROS),
    ("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, None, _NO_KERBEROS),
    ("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8, None, _NO_KERBEROS),
    ("sasl.login.refresh.buffer.seconds", _SHORT, 300, None, _NO_LOGIN),
    ("sasl.login.refresh.min.period.seconds", _SHORT, 60, None, _NO_LOGIN),
    ("sasl.login.refresh.window.factor", _DOUBLE, 0.8, None, _NO_LOGIN),
    ("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, None, _NO_LOGIN),
    ("sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI", None, _NO_LOGIN),
    ("ssl.endpoint.identification.algorithm", _STRING, "https", None, "brokers know each other by a secret"),
    ("ssl.engine.factory.class", _CLASS, None, _only(None), _NO_CLASSES),
    ("ssl.keymanager.algorithm", _STRING, "SunX509", None, _NO_PROVIDER),
    ("ssl.protocol", _STRING, "TLSv1.3", None, _NO_PROVIDER),
    ("ssl.provider", _STRING, None, None, _NO_PROVIDER),
    ("ssl.secure.random.implementation", _STRING, None, None, _NO_PROVIDER),
    ("ssl.trustmanager.algorithm", _STRING, "PKIX", None, _NO_PROVIDER),
)
_OF_GROUPS: Final = (
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
)

IGNORED_DYNAMIC_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        name: ConfigKey(name, config_type, default, f"{WITHOUT_EFFECT} {because}.", rule)
        for name, config_type, default, rule, because in (*_FOR_ALL_BROKERS, *_FOR_ONE_BROKER)
    }
    | {name: IGNORED_GROUP_KEYS[name] for name in _OF_GROUPS}
)
"""With Kafka's types, limits and defaults."""

OF_ONE_BROKER: Final = frozenset(name for name, *_ in _FOR_ONE_BROKER)
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
