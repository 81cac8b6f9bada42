"""The broker's configuration: which of Kafka's keys are honoured, with Kafka's names and, mostly, defaults.

Each field of `BrokerConfig` is one key; its name is the key's with `_` for `.`, and `keys/broker.toml` has
its type, default, limits and documentation. Its parts, each with the values derived from its keys, are
listeners, replication, the controller, racks, logs, their tier, tables, quotas, groups, transactions, the
authorizer, TLS and SASL. Defaults differ from Kafka's where a broker here differs: it listens on loopback
only, the application gives its directories, and the controller shuts it down and fences it sooner.

Source: Kafka 4.3's KafkaConfig; `tests/compat/test_config_keys.py` compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from sparklog.node.config.definition import ConfigError, find_key
from sparklog.node.config.key_table import broker_key, keys_by_attribute
from sparklog.node.config.keys.authorizer_keys import AuthorizerKeys
from sparklog.node.config.keys.controller_keys import ControllerKeys
from sparklog.node.config.keys.group_keys import GroupKeys
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS
from sparklog.node.config.keys.kafka_keys import KAFKA_BROKER_KEYS
from sparklog.node.config.keys.listener_keys import ListenerKeys
from sparklog.node.config.keys.quota_keys import QuotaKeys
from sparklog.node.config.keys.rack_keys import RackKeys
from sparklog.node.config.keys.remote_log_keys import SYSTEM_ENABLE, RemoteLogKeys, is_store_option
from sparklog.node.config.keys.replication_keys import ReplicationKeys
from sparklog.node.config.keys.sasl_keys import SaslKeys
from sparklog.node.config.keys.table_keys import TableBrokerKeys, is_catalog_option
from sparklog.node.config.keys.tls_keys import TlsKeys
from sparklog.node.config.keys.transaction_keys import TransactionKeys
from sparklog.node.config.listener_overrides import (
    MECHANISMS,
    ListenerKey,
    listener_key,
    overrides_by_listener,
)
from sparklog.node.config.listeners import BootstrapServer, parse_bootstrap_servers
from sparklog.node.config.log_defaults import LogDefaults
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.limits.connection_quotas import ListenerLimits
from sparklog.node.remote_log.uri import URI_KEY
from sparklog.protocol.types import BrokerId

_IDLE_FETCH_WAIT_MS: Final = 3_000
MAX_DEFAULT_REPLICATION_FACTOR: Final = 3
BOUND_BY_RACKS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    ListenerKeys,
    ReplicationKeys,
    ControllerKeys,
    RackKeys,
    LogDefaults,
    RemoteLogKeys,
    TableBrokerKeys,
    QuotaKeys,
    GroupKeys,
    TransactionKeys,
    AuthorizerKeys,
    TlsKeys,
    SaslKeys,
):
    """The configuration of every broker and of the controller; `raw` holds the properties as given.

    Attributes bear Kafka's values; -1 for "no limit" occurs in the `log_retention_...` attributes, which
    `sparklog.node.config.topic_config` turns into `None`.
    """

    raw: Mapping[str, str] = field(default_factory=dict, repr=False)  # of secrets, too
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Values set for all brokers while the cluster runs (`sparklog.node.config.dynamic`)."""
    dynamic: Mapping[str, str] = field(default_factory=dict)
    """Values set for this broker, which win over the defaults."""

    controller_quorum_bootstrap_servers: tuple[BootstrapServer, ...] = field(init=False)
    listener_overrides: Mapping[str, Mapping[str, str]] = field(init=False, repr=False)
    """The keys of single listeners (`sparklog.node.config.listener_overrides`), by listener name."""

    # Identity, which the cluster assigns
    node_id: int | None = broker_key("node.id", assigned=True)
    broker_rack: str | None = broker_key("broker.rack", assigned=True)

    # Topics
    num_partitions: int = broker_key("num.partitions")
    default_replication_factor: int = broker_key("default.replication.factor")
    auto_create_topics_enable: bool = broker_key("auto.create.topics.enable")
    delete_topic_enable: bool = broker_key("delete.topic.enable")
    auto_leader_rebalance_enable: bool = broker_key("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_seconds: int = broker_key("leader.imbalance.check.interval.seconds")
    unclean_leader_election_enable: bool = broker_key("unclean.leader.election.enable")
    unclean_leader_election_interval_ms: int = broker_key("unclean.leader.election.interval.ms")
    min_insync_replicas: int = broker_key("min.insync.replicas")

    # Directories and threads
    log_dir: tuple[str, ...] | None = broker_key("log.dir")
    log_dirs: tuple[str, ...] | None = broker_key("log.dirs")
    background_threads: int = broker_key("background.threads")
    num_recovery_threads_per_data_dir: int = broker_key("num.recovery.threads.per.data.dir")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, str], *, racks: int | None = None) -> Self:
        """Return the configuration with the values given under Kafka's keys.

        `racks`, the number of racks, bounds the default replication factors. Keys of `IGNORED_GROUP_KEYS` are
        checked and have no effect.

        Raises:
            ConfigError: an unknown key, one the cluster assigns, a malformed value, or values that contradict
                each other.
        """
        raw = dict(mapping)
        if racks is not None:
            for name in BOUND_BY_RACKS:
                raw.setdefault(name, str(min(racks, MAX_DEFAULT_REPLICATION_FACTOR)))
        if raw.get(URI_KEY, "").strip():
            raw.setdefault(SYSTEM_ENABLE, "true")
        values: dict[str, Any] = {}
        for name, text in raw.items():
            if listener_key(name) is not None or is_store_option(name) or is_catalog_option(name):
                continue
            if name in IGNORED_GROUP_KEYS:
                IGNORED_GROUP_KEYS[name].parse(text)
                continue
            key = find_key(BROKER_KEYS, name, KAFKA_BROKER_KEYS, "broker")
            if key.assigned:
                raise ConfigError(name, text, "the cluster sets this for every broker; remove it")
            values[BROKER_ATTRIBUTES[name]] = key.parse(text)
        return cls(raw=raw, **values)

    def __post_init__(self) -> None:
        ListenerKeys.__post_init__(self)
        ControllerKeys.__post_init__(self)
        RackKeys.__post_init__(self)
        ReplicationKeys.__post_init__(self)
        GroupKeys.__post_init__(self)
        AuthorizerKeys.__post_init__(self)
        RemoteLogKeys.__post_init__(self)
        TableBrokerKeys.__post_init__(self)
        listener_names = [listener.name for listener in self.listeners]
        servers = parse_bootstrap_servers(self.controller_quorum_bootstrap_servers_value, listener_names)
        object.__setattr__(self, "controller_quorum_bootstrap_servers", servers)
        overrides = overrides_by_listener(self.raw, BROKER_KEYS, KAFKA_BROKER_KEYS, listener_names)
        object.__setattr__(self, "listener_overrides", overrides)
        for listener_name in overrides:
            for mechanism in ("", *MECHANISMS):
                self.of_listener(listener_name, mechanism)

    def with_identity(self, node_id: BrokerId, rack: str | None) -> "BrokerConfig":
        assigned = {"node.id": str(node_id)} | ({} if rack is None else {"broker.rack": rack})
        return replace(self, node_id=node_id, broker_rack=rack, raw={**self.raw, **assigned})

    @property
    def inter_broker_protocol(self) -> SecurityProtocol:
        """The security protocol between brokers, and from the driver to brokers."""
        return self.security_protocol(self.inter_broker_listener)

    @property
    def controller_protocol(self) -> SecurityProtocol:
        """The security protocol from brokers to the driver."""
        return self.security_protocol(self.controller_quorum_bootstrap_servers[0].listener_name)

    def security_protocol(self, listener_name: str) -> SecurityProtocol:
        return next(each.security_protocol for each in self.listeners if each.name == listener_name)

    def of_listener(self, listener_name: str, mechanism: str = "") -> "BrokerConfig":
        """Return the configuration in force for one listener, and for one SASL mechanism of it.

        Raises:
            ConfigError: a value for the listener is malformed.
        """
        values: dict[str, Any] = {}
        prefix = f"{mechanism.lower()}."
        given = self.listener_overrides.get(listener_name, {})
        for name in sorted(given, key=lambda name: name.startswith(prefix)):
            key = BROKER_KEYS.get(name.removeprefix(prefix))
            if key is None:
                continue  # of another mechanism
            try:
                values[BROKER_ATTRIBUTES[key.name]] = key.parse(given[name])
            except ConfigError as error:
                raise error.of_key(str(ListenerKey(listener_name, name))) from None
        return replace(self, raw={}, **values) if values else self

    def listener_limits(self, listener_name: str) -> ListenerLimits:
        own, overrides = self.of_listener(listener_name), self.listener_overrides.get(listener_name, {})
        no_limits = ListenerLimits()
        return ListenerLimits(
            own.max_connections if "max.connections" in overrides else no_limits.max_connections,
            own.max_connection_creation_rate
            if "max.connection.creation.rate" in overrides
            else no_limits.max_connection_creation_rate,
        )

    @property
    def idle_fetch_wait_ms(self) -> int:
        """How long a leader may hold the fetch of an idle follower: a replica.fetch.wait.max.ms as given."""
        if "replica.fetch.wait.max.ms" in self.raw:
            return self.replica_fetch_wait_max_ms
        # Longer than the default wait, unless the lag or the silence that are configured are shorter.
        longest_ms = min(_IDLE_FETCH_WAIT_MS, self.replica_lag_time_max_ms, self.replica_socket_timeout_ms)
        return max(longest_ms, self.replica_fetch_wait_max_ms)

    @property
    def metadata_directory(self) -> Path | None:
        """The directory of this broker's metadata log; None for its first log directory."""
        parent = self.metadata_log_dir
        return None if parent is None else Path(parent, f"broker-{self.node_id}")

    def value(self, name: str) -> Any:
        """Return the value of the key with Kafka's name.

        Raises:
            KeyError: this system does not honour the key.
        """
        return getattr(self, BROKER_ATTRIBUTES[name])

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories of log.dirs, else of log.dir; empty if the application chooses."""
        return self.log_dirs or self.log_dir or ()


_KEYS: Final = keys_by_attribute(BrokerConfig)
BROKER_KEYS: Final = MappingProxyType({key.name: key for key in _KEYS.values()})
BROKER_ATTRIBUTES: Final = MappingProxyType({key.name: attribute for attribute, key in _KEYS.items()})
