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
from sparklog.config.topic import TOPIC_SYNONYMS, checked_topic_config
from sparklog.errors import ErrorCode, KafkaError

__all__ = ["DYNAMIC_KEYS", "check_dynamic", "with_dynamic"]

logger = logging.getLogger(__name__)

_DECIDED_BY_THE_CONTROLLER: Final = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
"""It goes by its properties; a broker that goes by others would acknowledge what the controller may lose."""

DYNAMIC_KEYS: Final = (
    frozenset(synonyms[0].name for synonyms in TOPIC_SYNONYMS.values() if synonyms)
    - _DECIDED_BY_THE_CONTROLLER
) | {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
}
"""Those of a topic's defaults which come first, quotas, and what bounds connections."""


def check_dynamic(
    config: BrokerConfig,
    changes: Mapping[str, str | None],
    *,
    of_all_brokers: Mapping[str, str],
    own: Mapping[str, str],
) -> None:
    """Refuse changes that a broker would not obey while it runs; `None` takes a value away.

    With them it has the values that all brokers are told, and its `own`, over what it was started with.

    Raises:
        KafkaError: INVALID_REQUEST, as in Kafka, or INVALID_CONFIG for a key that does not exist.
    """
    unchangeable = []
    for name in changes:
        find_key(BROKER_KEYS, name, KAFKA_BROKER_KEYS, "broker")
        if name not in DYNAMIC_KEYS:
            unchangeable.append(name)
    if unchangeable:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(sorted(unchangeable))}",
        )
    try:
        _parsed((name, text) for name, text in changes.items() if text is not None)
        checked_topic_config(with_dynamic(config, of_all_brokers, own), {})
        _check_somebody_may_connect(changes)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_request, error.message) from error


def _check_somebody_may_connect(changes: Mapping[str, str | None]) -> None:
    """Refuse what nobody could take back, because no connection would be taken any more."""
    for name in ("max.connections", "max.connections.per.ip"):
        text = changes.get(name)
        if text is not None and BROKER_KEYS[name].parse(text) == 0:
            raise ConfigError(name, text, "nobody could connect to change it again; expected at least 1")


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
