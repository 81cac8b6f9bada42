"""Broker keys that can change while the cluster runs, and their effect on brokers.

Two levels, as in Kafka: a value for one broker wins over one for all brokers, which wins over the properties.
`DYNAMIC_KEYS` may stand at either level. Kafka's dynamic keys without a meaning here are checked and kept
(`IGNORED_DYNAMIC_KEYS`). A change of listeners or their security is refused, since it would have no effect.

Source: Kafka's DynamicBrokerConfig, DynamicThreadPool, SocketServer and DynamicConfig.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from sparklog.node.config.broker import BROKER_ATTRIBUTES, BROKER_KEYS, BrokerConfig
from sparklog.node.config.definition import ConfigError, ConfigKey, find_key
from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY
from sparklog.node.config.keys.ignored_broker_keys import IGNORED_DYNAMIC_KEYS, OF_ONE_BROKER, THREAD_COUNTS
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS
from sparklog.node.config.keys.kafka_keys import KAFKA_BROKER_KEYS
from sparklog.node.config.keys.remote_log_keys import SYSTEM_ENABLE
from sparklog.node.config.listener_overrides import listener_key
from sparklog.node.config.topic import TOPIC_SYNONYMS, checked_topic_config
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_OF_ALL_BROKERS_ONLY: Final = frozenset(
    {
        BROKERS_PER_RACK_KEY,
        RACKS_KEY,
        "sparklog.balance.enable",
        "sparklog.replace.after.ms",
        "unclean.leader.election.enable",
    }
)
"""Only the controller reads it."""
_THREADS_OF_STARTS: Final = frozenset(
    {"background.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers"}
)
"""Read at a broker's start only: a change is kept without an effect."""

_FURTHER_NAMES: Final = """
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms log.cleaner.threads
log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second follower.replication.throttled.rate
leader.replication.throttled.rate max.connection.creation.rate max.connections max.connections.per.ip
max.connections.per.ip.overrides producer.id.expiration.ms remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.manager.copy.max.bytes.per.second
remote.log.manager.fetch.max.bytes.per.second replica.alter.log.dirs.io.max.bytes.per.second
sparklog.balance.enable sparklog.read.only sparklog.replace.after.ms
transaction.partition.verification.enable
"""

DYNAMIC_KEYS: Final = (
    frozenset(synonyms[0].name for synonyms in TOPIC_SYNONYMS.values() if synonyms) - {SYSTEM_ENABLE}
    | {BROKERS_PER_RACK_KEY, RACKS_KEY}
    | set(_FURTHER_NAMES.split())
    | _THREADS_OF_STARTS
)
"""Defaults of topics under their first names, keys of the cleaner and of the tier, quotas, connection limits,
thread counts."""

CHANGEABLE_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {**IGNORED_DYNAMIC_KEYS, **{name: BROKER_KEYS[name] for name in DYNAMIC_KEYS}}
)
"""The keys that may be changed, with or without an effect."""


def check_dynamic(
    obeyed: BrokerConfig, wanted: BrokerConfig, changes: Mapping[str, str | None], *, of_all_brokers: bool
) -> None:
    """Refuse changes without an effect on a running broker; None deletes a value.

    `wanted` is the configuration after the changes, `obeyed` the current one; `of_all_brokers` or of one.

    Raises:
        KafkaError: INVALID_REQUEST, as in Kafka, or INVALID_CONFIG for a key that does not exist.
    """
    unchangeable = []
    for name in changes:
        if name in CHANGEABLE_KEYS:
            continue
        if name not in IGNORED_GROUP_KEYS and listener_key(name) is None:
            find_key(BROKER_KEYS, name, KAFKA_BROKER_KEYS, "broker")
        unchangeable.append(name)
    if unchangeable:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(sorted(unchangeable))}",
        )
    of_one_broker = OF_ONE_BROKER.intersection(changes)
    if of_all_brokers and of_one_broker:
        raise KafkaError(
            ErrorCode.invalid_request,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{', '.join(sorted(of_one_broker))}",
        )
    for name in [] if of_all_brokers else _OF_ALL_BROKERS_ONLY.intersection(changes):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{name} is obeyed by the controller: change it for all brokers (--entity-default), not for one",
        )
    try:
        for name, text in changes.items():
            if text is not None:
                CHANGEABLE_KEYS[name].parse(text)
        checked_topic_config(wanted, {})
        _check_somebody_may_connect(changes)
        for name in THREAD_COUNTS.intersection(changes):
            _check_threads(name, _value(wanted, name), _value(obeyed, name))
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_request, error.message) from error


def _check_somebody_may_connect(changes: Mapping[str, str | None]) -> None:
    """Refuse a limit of 0 connections, which no later request could undo."""
    for name in ("max.connections", "max.connections.per.ip"):
        text = changes.get(name)
        if text is not None and BROKER_KEYS[name].parse(text) == 0:
            raise ConfigError(name, text, "no client could connect to undo the change; expected at least 1")


def _check_threads(name: str, wanted: int, obeyed: int) -> None:
    """Check a thread count as Kafka does (DynamicThreadPool, LogCleaner.validateReconfiguration)."""
    allowed = None
    if wanted < 1:
        allowed = "at least 1"
    elif wanted < obeyed // 2:
        allowed = f"at least half of the current value {obeyed}"
    elif wanted > obeyed * 2:
        allowed = f"at most double the current value {obeyed}"
    if allowed is not None:
        raise ConfigError(name, str(wanted), f"expected {allowed}")


def _value(config: BrokerConfig, name: str) -> Any:
    """Return the value of a key, of those without an effect too."""
    if name in BROKER_KEYS:
        return config.value(name)
    key = IGNORED_DYNAMIC_KEYS[name]
    text = config.dynamic.get(name, config.dynamic_defaults.get(name))
    return key.default if text is None else key.parse(text)


def with_dynamic(
    config: BrokerConfig, of_all_brokers: Mapping[str, str], own: Mapping[str, str]
) -> BrokerConfig:
    """Return the configuration of a broker started with `config`, under the dynamic values."""
    if not of_all_brokers and not own:
        return config
    values: dict[str, Any] = {}
    for name, text in (*of_all_brokers.items(), *own.items()):
        try:
            if name in DYNAMIC_KEYS:
                values |= _parsed([(name, text)])
        except ConfigError as error:  # set by another version of sparklog; the broker goes on without it
            logger.error("A dynamic configuration is ignored: %s", error)
    return replace(
        config,
        dynamic_defaults=MappingProxyType(dict(of_all_brokers)),
        dynamic=MappingProxyType(dict(own)),
        **values,
    )


def _parsed(items: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {BROKER_ATTRIBUTES[name]: BROKER_KEYS[name].parse(text) for name, text in items}
