"""The broker's configuration: which of Kafka's keys are honoured, with Kafka's names and, mostly, defaults.

Each field of `BrokerConfig` is one key; its name is the key's with `_` for `.`. The defaults differ from
Kafka's where a broker here lives differently: it listens on loopback only, it is told to leave and is fenced
faster, and its directories are given by the application.

Source: Kafka 4.3's KafkaConfig; `tests/compat/test_config_keys.py` compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from sparklog.config.controller_keys import ControllerKeys, SnapshotLimits
from sparklog.config.definition import (
    INT_MAX,
    LONG_MAX,
    ConfigError,
    ConfigKey,
    ConfigType,
    at_least,
    config_key,
    either,
    find_key,
)
from sparklog.config.kafka_keys import KAFKA_BROKER_KEYS
from sparklog.config.listeners import (
    HostPort,
    advertised_endpoints,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol_map,
)
from sparklog.config.log_defaults import LogDefaults
from sparklog.endpoints import CONTROLLER_LISTENER, Endpoint
from sparklog.storage.log_config import LogConfig
from sparklog.types import BrokerId
from sparklog.wire.socket_settings import SocketSettings

MAX_DEFAULT_REPLICATION_FACTOR: Final = 3
FLUSH_CHECK_INTERVAL_MS: Final = 1000
"""How often logs to be flushed by time are looked for when log.flush.scheduler.interval.ms is not set."""
METADATA_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The largest batch of the metadata log, which is Kafka's too."""


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(ControllerKeys, LogDefaults):
    """The configuration of every broker and of the controller; `raw` holds what was given, as it was given.

    Attributes bear Kafka's values; -1 for "no limit" occurs in the `log_retention_...` attributes, which
    `sparklog.config.topic_config` turns into `None`.
    """

    raw: Mapping[str, str] = field(default_factory=dict)

    # Identity, which the cluster assigns
    node_id: int | None = config_key(
        "node.id",
        ConfigType.INT,
        None,
        "The broker's id, kept in its data directory.",
        at_least(0),
        assigned=True,
    )
    broker_rack: str | None = config_key(
        "broker.rack", ConfigType.STRING, None, "The rack job that runs the broker.", assigned=True
    )

    # Listeners and connections
    listeners_value: tuple[str, ...] = config_key(
        "listeners",
        ConfigType.LIST,
        ("PLAINTEXT://127.0.0.1:0",),
        "Where brokers listen, as name://host:port; port 0 takes a free one. Other hosts than loopback"
        " must be named, 0.0.0.0 being every interface.",
    )
    advertised_listeners_value: tuple[str, ...] | None = config_key(
        "advertised.listeners",
        ConfigType.LIST,
        None,
        "Where clients are told to connect, if not where brokers listen.",
    )
    listener_security_protocol_map: str = config_key(
        "listener.security.protocol.map",
        ConfigType.STRING,
        "PLAINTEXT:PLAINTEXT",
        "The security protocol of each listener name. Only PLAINTEXT is served.",
    )
    inter_broker_listener_name: str | None = config_key(
        "inter.broker.listener.name",
        ConfigType.STRING,
        None,
        "The listener followers fetch from; the first if not set.",
    )
    socket_send_buffer_bytes: int = config_key(
        "socket.send.buffer.bytes",
        ConfigType.INT,
        -1,
        "SO_SNDBUF of connections; -1, unlike Kafka's default, leaves it to the system, which sizes it as a"
        " connection needs.",
        either(-1, at_least(1)),
    )
    socket_receive_buffer_bytes: int = config_key(
        "socket.receive.buffer.bytes",
        ConfigType.INT,
        -1,
        "SO_RCVBUF of connections; -1, unlike Kafka's default, leaves it to the system, which sizes it as a"
        " connection needs.",
        either(-1, at_least(1)),
    )
    socket_request_max_bytes: int = config_key(
        "socket.request.max.bytes",
        ConfigType.INT,
        104857600,
        "The largest request; a longer one closes the connection.",
        at_least(1),
    )
    message_max_decompressed_bytes: int = config_key(
        "message.max.decompressed.bytes",
        ConfigType.INT,
        67108864,
        "To how much the records of one compressed batch may expand; a batch beyond it is refused with"
        " MESSAGE_TOO_LARGE. Not a key of Kafka's, which has no such bound.",
        at_least(1),
    )
    socket_listen_backlog_size: int = config_key(
        "socket.listen.backlog.size",
        ConfigType.INT,
        1024,
        "How many connections may wait to be accepted; more than Kafka's default, because the thread that"
        " accepts them also answers requests. The system may allow fewer.",
        at_least(1),
    )
    max_connections: int = config_key(
        "max.connections",
        ConfigType.INT,
        INT_MAX,
        "How many connections a broker keeps open on all its listeners; further ones are closed at once. A"
        " listener that the brokers have beside the clients' is excepted.",
        at_least(0),
    )
    max_connections_per_ip: int = config_key(
        "max.connections.per.ip",
        ConfigType.INT,
        INT_MAX,
        "How many connections one address may keep open to a broker; further ones are closed at once.",
        at_least(0),
    )
    connections_max_idle_ms: int = config_key(
        "connections.max.idle.ms",
        ConfigType.LONG,
        600000,
        "After how much silence a connection is closed, unless it waits for an answer; -1 for never.",
        either(-1, at_least(1)),
    )
    request_timeout_ms: int = config_key(
        "request.timeout.ms",
        ConfigType.INT,
        30000,
        "How long a broker waits for an answer of the controller.",
    )
    max_request_partition_size_limit: int = config_key(
        "max.request.partition.size.limit",
        ConfigType.INT,
        2000,
        "The most partitions in one DescribeTopicPartitions answer.",
        at_least(1),
    )

    # Topics
    num_partitions: int = config_key(
        "num.partitions", ConfigType.INT, 1, "How many partitions a topic gets if nobody says.", at_least(1)
    )
    default_replication_factor: int = config_key(
        "default.replication.factor",
        ConfigType.INT,
        1,
        "How many replicas a partition gets if nobody says: the number of racks, at most 3, if not set.",
        at_least(1),
    )
    auto_create_topics_enable: bool = config_key(
        "auto.create.topics.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether asking for a topic's metadata may create it.",
    )
    delete_topic_enable: bool = config_key(
        "delete.topic.enable", ConfigType.BOOLEAN, True, "Whether topics can be deleted."
    )
    auto_leader_rebalance_enable: bool = config_key(
        "auto.leader.rebalance.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether leadership returns to preferred replicas by itself.",
    )
    leader_imbalance_check_interval_seconds: int = config_key(
        "leader.imbalance.check.interval.seconds",
        ConfigType.LONG,
        300,
        "How often the controller looks for leaderships to return.",
        at_least(1),
    )
    unclean_leader_election_enable: bool = config_key(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a replica outside the ISR may lead, losing records, when no other can.",
    )
    unclean_leader_election_interval_ms: int = config_key(
        "unclean.leader.election.interval.ms",
        ConfigType.LONG,
        300000,
        "How often the controller looks for partitions whose topics have come to allow unclean elections.",
        at_least(1),
    )
    min_insync_replicas: int = config_key(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "The smallest ISR with which acks=all is acknowledged.",
        at_least(1),
    )

    # Replication and fetching
    replica_lag_time_max_ms: int = config_key(
        "replica.lag.time.max.ms",
        ConfigType.LONG,
        30000,
        "How long a follower may lag before it leaves the ISR.",
    )
    replica_socket_timeout_ms: int = config_key(
        "replica.socket.timeout.ms",
        ConfigType.INT,
        30000,
        "How long a follower waits for an answer of its leader.",
    )
    replica_socket_receive_buffer_bytes: int = config_key(
        "replica.socket.receive.buffer.bytes",
        ConfigType.INT,
        -1,
        "SO_RCVBUF of a follower's connections; -1, unlike Kafka's default, leaves it to the system.",
        either(-1, at_least(1)),
    )
    replica_fetch_max_bytes: int = config_key(
        "replica.fetch.max.bytes",
        ConfigType.INT,
        1048576,
        "How many bytes a follower asks for a partition; one batch always fits.",
        at_least(0),
    )
    replica_fetch_wait_max_ms: int = config_key(
        "replica.fetch.wait.max.ms",
        ConfigType.INT,
        500,
        "How long a leader may hold a follower's fetch open.",
    )
    replica_fetch_min_bytes: int = config_key(
        "replica.fetch.min.bytes", ConfigType.INT, 1, "How many bytes a follower waits for."
    )
    replica_fetch_response_max_bytes: int = config_key(
        "replica.fetch.response.max.bytes",
        ConfigType.INT,
        10485760,
        "How many bytes a follower asks for at once.",
        at_least(0),
    )
    replica_fetch_backoff_ms: int = config_key(
        "replica.fetch.backoff.ms",
        ConfigType.INT,
        1000,
        "The pause after a failed fetch of a follower.",
        at_least(0),
    )
    replica_high_watermark_checkpoint_interval_ms: int = config_key(
        "replica.high.watermark.checkpoint.interval.ms",
        ConfigType.LONG,
        5000,
        "How often high watermarks go to disk.",
    )
    num_replica_fetchers: int = config_key(
        "num.replica.fetchers",
        ConfigType.INT,
        1,
        "How many connections a follower keeps to one leader.",
        at_least(1),
    )
    fetch_max_bytes: int = config_key(
        "fetch.max.bytes",
        ConfigType.INT,
        57671680,
        "The most bytes in one answer to a consumer.",
        at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = config_key(
        "max.incremental.fetch.session.cache.slots",
        ConfigType.INT,
        1000,
        "How many incremental fetch sessions a broker remembers.",
        at_least(0),
    )
    producer_id_expiration_ms: int = config_key(
        "producer.id.expiration.ms",
        ConfigType.INT,
        86400000,
        "After how long an idle producer's sequence numbers are forgotten: since its last append, whatever "
        "time its records tell of.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = config_key(
        "producer.id.expiration.check.interval.ms",
        ConfigType.INT,
        600000,
        "How often idle producers are looked for.",
        at_least(1),
    )

    # Directories and threads
    log_dir: tuple[str, ...] | None = config_key(
        "log.dir",
        ConfigType.LIST,
        None,
        "The data directory, where log.dirs is not set; the application's own if neither is.",
    )
    log_dirs: tuple[str, ...] | None = config_key("log.dirs", ConfigType.LIST, None, "The data directories.")
    background_threads: int = config_key(
        "background.threads",
        ConfigType.INT,
        10,
        "How many threads do file work beside the event loop.",
        at_least(1),
    )
    num_recovery_threads_per_data_dir: int = config_key(
        "num.recovery.threads.per.data.dir",
        ConfigType.INT,
        2,
        "How many threads open and recover the logs of a directory.",
        at_least(1),
    )

    # What the listener keys add up to
    listeners: tuple[Endpoint, ...] = field(init=False)
    advertised_listeners: tuple[Endpoint, ...] | None = field(init=False)
    controller_quorum_bootstrap_servers: tuple[HostPort, ...] = field(init=False)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, str], *, racks: int | None = None) -> Self:
        """Return the configuration with the values given under Kafka's keys.

        With `racks`, the number of racks bounds the replication factor that is taken if none is given.

        Raises:
            ConfigError: an unknown key, one the cluster assigns, a malformed value, or values that contradict
                each other.
        """
        raw = dict(mapping)
        if racks is not None:
            raw.setdefault("default.replication.factor", str(min(racks, MAX_DEFAULT_REPLICATION_FACTOR)))
        values: dict[str, Any] = {}
        for name, text in raw.items():
            key = find_key(BROKER_KEYS, name, KAFKA_BROKER_KEYS, "broker")
            if key.assigned:
                raise ConfigError(name, text, "the cluster sets this for every broker; remove it")
            values[BROKER_ATTRIBUTES[name]] = key.parse(text)
        return cls(raw=raw, **values)

    def __post_init__(self) -> None:
        """Read the listeners and check what one key alone cannot tell."""
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        listeners = parse_listeners("listeners", self.listeners_value, protocols)
        advertised = (
            None
            if self.advertised_listeners_value is None
            else parse_listeners("advertised.listeners", self.advertised_listeners_value, protocols)
        )
        object.__setattr__(self, "listeners", listeners)
        object.__setattr__(self, "advertised_listeners", advertised)
        object.__setattr__(
            self,
            "controller_quorum_bootstrap_servers",
            parse_bootstrap_servers(self.controller_quorum_bootstrap_servers_value),
        )
        self._check()

    def _check(self) -> None:
        listener_names = {listener.name for listener in self.listeners}
        if CONTROLLER_LISTENER in listener_names:
            raise ConfigError(
                "listeners",
                CONTROLLER_LISTENER,
                "brokers have a listener of that name for the metadata quorum",
            )
        for endpoint in self.advertised_listeners or ():
            if endpoint.name not in listener_names:
                raise ConfigError("advertised.listeners", endpoint.name, "no listener has this name")
        if self.inter_broker_listener_name not in (None, *listener_names):
            raise ConfigError(
                "inter.broker.listener.name", self.inter_broker_listener_name, "no listener has this name"
            )
        if self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms:
            raise ConfigError(
                "replica.fetch.wait.max.ms",
                str(self.replica_fetch_wait_max_ms),
                f"must not exceed replica.socket.timeout.ms ({self.replica_socket_timeout_ms})",
            )
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError(
                "replica.fetch.wait.max.ms",
                str(self.replica_fetch_wait_max_ms),
                f"must not exceed replica.lag.time.max.ms ({self.replica_lag_time_max_ms})",
            )
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise ConfigError(
                "broker.heartbeat.interval.ms",
                str(self.broker_heartbeat_interval_ms),
                f"must be at most half of broker.session.timeout.ms ({self.broker_session_timeout_ms})",
            )

    def with_identity(self, node_id: BrokerId, rack: str | None) -> "BrokerConfig":
        """Return the configuration of one broker."""
        assigned = {"node.id": str(node_id)} | ({} if rack is None else {"broker.rack": rack})
        return replace(self, node_id=node_id, broker_rack=rack, raw={**self.raw, **assigned})

    @property
    def metadata_directory(self) -> Path | None:
        """Where this one of a host's brokers has its metadata log; None for its first log directory."""
        parent = self.metadata_log_dir
        return None if parent is None else Path(parent, f"broker-{self.node_id}")

    def metadata_log_config(self) -> LogConfig:
        """Return what the metadata log is to obey: what goes of it goes by its snapshots alone."""
        return LogConfig(
            segment_bytes=self.metadata_log_segment_bytes,
            segment_ms=self.metadata_log_segment_ms,
            retention_ms=None,
            retention_bytes=None,
            deletes=False,
            max_message_bytes=METADATA_MAX_BATCH_BYTES,
        )

    def snapshot_limits(self) -> SnapshotLimits:
        """Return how often snapshots of the metadata log are written, and what is kept."""
        max_bytes, max_age_ms = self.metadata_max_retention_bytes, self.metadata_max_retention_ms
        return SnapshotLimits(
            max_record_bytes=self.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=self.metadata_log_max_snapshot_interval_ms or None,
            retention_bytes=None if max_bytes < 0 else max_bytes,
            retention_ms=None if max_age_ms < 0 else max_age_ms,
        )

    def socket_settings(self) -> SocketSettings:
        """Return what listeners ask of their sockets."""
        return SocketSettings(
            send_buffer_bytes=_unless_minus_one(self.socket_send_buffer_bytes),
            receive_buffer_bytes=_unless_minus_one(self.socket_receive_buffer_bytes),
            listen_backlog_size=self.socket_listen_backlog_size,
            request_max_bytes=self.socket_request_max_bytes,
            connections_max_idle_ms=_unless_minus_one(self.connections_max_idle_ms),
        )

    @property
    def flush_check_interval_ms(self) -> int:
        """How often logs are looked for that flush.ms makes due."""
        interval_ms = self.log_flush_scheduler_interval_ms
        return FLUSH_CHECK_INTERVAL_MS if interval_ms == LONG_MAX else interval_ms

    @property
    def replica_receive_buffer_bytes(self) -> int | None:
        """SO_RCVBUF of a follower's connections, `None` to leave it to the system."""
        return _unless_minus_one(self.replica_socket_receive_buffer_bytes)

    def value(self, name: str) -> Any:
        """Return the value of the key with Kafka's name.

        Raises:
            KeyError: this system does not honour the key.
        """
        return getattr(self, BROKER_ATTRIBUTES[name])

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories of log.dirs, else of log.dir; empty if the application is to choose."""
        return self.log_dirs or self.log_dir or ()

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that followers fetch from."""
        return self.inter_broker_listener_name or self.listeners[0].name

    def advertised_endpoints(self, bound: tuple[Endpoint, ...], host_name: str) -> tuple[Endpoint, ...]:
        """Return where clients are to connect, given the addresses that were bound.

        A listener that is not advertised explicitly is advertised under its own host, or, where it listens
        on every interface, under `host_name`; port 0 becomes the bound port.
        """
        return advertised_endpoints(self.advertised_listeners or (), bound, host_name)


def _unless_minus_one(value: int) -> int | None:
    return None if value == -1 else value


BROKER_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        item.metadata["key"].name: item.metadata["key"]
        for item in fields(BrokerConfig)
        if "key" in item.metadata
    }
)
"""The keys that this system honours, by name."""

BROKER_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {item.metadata["key"].name: item.name for item in fields(BrokerConfig) if "key" in item.metadata}
)
"""The attribute of `BrokerConfig` for each key."""
