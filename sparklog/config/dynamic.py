"""Which broker keys can be changed while the cluster runs, and what brokers make of it.

Two levels, as in Kafka: a value for one broker wins over one for all brokers, which wins over the properties.
All keys here may stand at either level. Kafka has more of them; what is not listed is read-only here, and a
change of it is refused, for it would be kept and not obeyed.

Source: Kafka's DynamicBrokerConfig, DynamicLogConfig, SocketServer and DynamicConfig.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from sparklog.config.broker import BROKER_ATTRIBUTES, BROKER_KEYS, BrokerConfig
from sparklog.config.definition import ConfigError, find_key
from sparklog.config.kafka_keys import KAFKA_BROKER_KEYS
from sparklog.config.kept_group_keys import KEPT_GROUP_KEYS
from sparklog.config.topic import TOPIC_SYNONYMS, checked_topic_config
from sparklog.errors import ErrorCode, KafkaError

__all__ = ["DYNAMIC_KEYS", "check_dynamic", "with_dynamic"]

logger = logging.getLogger(__name__)

_CLEANER_THREADS: Final = "log.cleaner.threads"
_OF_ALL_BROKERS_ONLY: Final = frozenset({"unclean.leader.election.enable"})
"""The controller alone goes by it."""

DYNAMIC_KEYS: Final = frozenset(synonyms[0].name for synonyms in TOPIC_SYNONYMS.values() if synonyms) | {
    _CLEANER_THREADS,
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "transaction.partition.verification.enable",
}
"""Those of a topic's defaults which come first, the cleaner's, quotas, and what bounds connections.

Kafka's table has more: listeners and their security, and how many threads there are of a kind.
"""


def check_dynamic(
    obeyed: BrokerConfig, wanted: BrokerConfig, changes: Mapping[str, str | None], *, of_all_brokers: bool
) -> None:
    """Refuse changes that a broker would not obey while it runs; `None` takes a value away.

    They make what is `wanted` of what is `obeyed` now, `of_all_brokers` or of one.

    Raises:
        KafkaError: INVALID_REQUEST, as in Kafka, or INVALID_CONFIG for a key that does not exist.
    """
    unchangeable = []
    for name in changes:
        if name not in KEPT_GROUP_KEYS:
            find_key(BROKER_KEYS, name, KAFKA_BROKER_KEYS, "broker")
        if name not in DYNAMIC_KEYS:
            unchangeable.append(name)
    if unchangeable:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(sorted(unchangeable))}",
        )
    for name in [] if of_all_brokers else _OF_ALL_BROKERS_ONLY.intersection(changes):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{name} is obeyed by the controller: change it for all brokers (--entity-default), not for one",
        )
    try:
        _parsed((name, text) for name, text in changes.items() if text is not None)
        checked_topic_config(wanted, {})
        _check_somebody_may_connect(changes)
        if _CLEANER_THREADS in changes:
            _check_cleaner_threads(wanted.log_cleaner_threads, obeyed.log_cleaner_threads)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_request, error.message) from error


def _check_somebody_may_connect(changes: Mapping[str, str | None]) -> None:
    """Refuse what nobody could take back, because no connection would be taken any more."""
    for name in ("max.connections", "max.connections.per.ip"):
        text = changes.get(name)
        if text is not None and BROKER_KEYS[name].parse(text) == 0:
            raise ConfigError(name, text, "nobody could connect to change it again; expected at least 1")


def _check_cleaner_threads(wanted: int, obeyed: int) -> None:
    """Refuse what Kafka refuses (LogCleaner.validateReconfiguration)."""
    allowed = None
    if wanted < 1:
        allowed = "at least 1"
    elif wanted < obeyed // 2:
        allowed = f"at least half of the current value {obeyed}"
    elif wanted > obeyed * 2:
        allowed = f"at most double the current value {obeyed}"
    if allowed is not None:
        raise ConfigError(_CLEANER_THREADS, str(wanted), f"expected {allowed}")


def with_dynamic(
    config: BrokerConfig, of_all_brokers: Mapping[str, str], own: Mapping[str, str]
) -> BrokerConfig:
    """Return what a broker obeys that was started with `config`."""
    if not of_all_brokers and not own:
        return config
    values: dict[str, Any] = {}
    for name, text in (*of_all_brokers.items(), *own.items()):
        try:
            if name in DYNAMIC_KEYS:
                values |= _parsed([(name, text)])
        except ConfigError as error:  # of another version of this project; a broker must not end for it
            logger.error("A dynamic configuration is not obeyed: %s", error)
    return replace(
        config,
        dynamic_defaults=MappingProxyType(dict(of_all_brokers)),
        dynamic=MappingProxyType(dict(own)),
        **values,
    )


def _parsed(items: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {BROKER_ATTRIBUTES[name]: BROKER_KEYS[name].parse(text) for name, text in items}
