"""The broker's configuration: which of Kafka's keys are honoured, with Kafka's names and, mostly, defaults.

Each field of `BrokerConfig` is one key; its name is the key's with `_` for `.`. The defaults differ from
Kafka's where a broker here lives differently: it listens on loopback only, it is told to leave and is fenced
faster, and its directories are given by the application.

Source: Kafka 4.3's KafkaConfig; `tests/compat/test_config_keys.py` compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final, Self

from sparklog.config.definition import (
    INT_MAX,
    LONG_MAX,
    ConfigError,
    ConfigKey,
    ConfigType,
    Rule,
    at_least,
    between,
    either,
    find_key,
    one_of,
    some_of,
)
from sparklog.config.kafka_keys import KAFKA_BROKER_KEYS
from sparklog.config.listeners import (
    HostPort,
    advertised_endpoints,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol_map,
)
from sparklog.metadata.registrations import Endpoint
from sparklog.storage.log_config import LogConfig
from sparklog.types import BrokerId

MAX_DEFAULT_REPLICATION_FACTOR: Final = 3
METADATA_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The largest batch of the metadata log, which is Kafka's too."""

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST


def _key(
    name: str,
    config_type: ConfigType,
    default: object,
    documentation: str,
    rule: Rule | None = None,
    *,
    assigned: bool = False,
) -> Any:
    key = ConfigKey(name, config_type, default, documentation, rule, assigned=assigned)  # type: ignore[arg-type]
    return field(default=default, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The configuration of every broker and of the controller; `raw` holds what was given, as it was given.

    Attributes bear Kafka's values; -1 for "no limit" occurs in the `log_retention_...` attributes, which
    `sparklog.config.topic_config` turns into `None`.
    """

    raw: Mapping[str, str] = field(default_factory=dict)

    # Identity, which the cluster assigns
    node_id: int | None = _key(
        "node.id", _INT, None, "The broker's id, kept in its data directory.", at_least(0), assigned=True
    )
    broker_rack: str | None = _key(
        "broker.rack", _STRING, None, "The rack job that runs the broker.", assigned=True
    )

    # Listeners and connections
    listeners_value: tuple[str, ...] = _key(
        "listeners",
        _LIST,
        ("PLAINTEXT://127.0.0.1:0",),
        "Where brokers listen, as name://host:port; port 0 takes a free one. Other hosts than loopback"
        " must be named, 0.0.0.0 being every interface.",
    )
    advertised_listeners_value: tuple[str, ...] | None = _key(
        "advertised.listeners", _LIST, None, "Where clients are told to connect, if not where brokers listen."
    )
    listener_security_protocol_map: str = _key(
        "listener.security.protocol.map",
        _STRING,
        "PLAINTEXT:PLAINTEXT",
        "The security protocol of each listener name. Only PLAINTEXT is served.",
    )
    inter_broker_listener_name: str | None = _key(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener followers fetch from; the first if not set.",
    )
    socket_send_buffer_bytes: int = _key(
        "socket.send.buffer.bytes", _INT, 102400, "SO_SNDBUF of connections; -1 leaves it to the system."
    )
    socket_receive_buffer_bytes: int = _key(
        "socket.receive.buffer.bytes", _INT, 102400, "SO_RCVBUF of connections; -1 leaves it to the system."
    )
    socket_request_max_bytes: int = _key(
        "socket.request.max.bytes",
        _INT,
        104857600,
        "The largest request; a longer one closes the connection.",
        at_least(1),
    )
    socket_listen_backlog_size: int = _key(
        "socket.listen.backlog.size", _INT, 50, "How many connections may wait to be accepted.", at_least(1)
    )
    max_connections: int = _key(
        "max.connections", _INT, INT_MAX, "How many connections a broker keeps open.", at_least(0)
    )
    max_connections_per_ip: int = _key(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        "How many connections one address may keep open.",
        at_least(0),
    )
    connections_max_idle_ms: int = _key(
        "connections.max.idle.ms", _LONG, 600000, "After how much silence a connection is closed."
    )
    request_timeout_ms: int = _key(
        "request.timeout.ms", _INT, 30000, "How long a broker waits for an answer of the controller."
    )
    max_request_partition_size_limit: int = _key(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "The most partitions in one DescribeTopicPartitions answer.",
        at_least(1),
    )

    # The controller and the metadata log
    controller_quorum_bootstrap_servers_value: tuple[str, ...] = _key(
        "controller.quorum.bootstrap.servers",
        _LIST,
        ("127.0.0.1:0",),
        "Where the controller, in the driver, listens; port 0 takes a free one.",
    )
    controller_quorum_fetch_timeout_ms: int = _key(
        "controller.quorum.fetch.timeout.ms",
        _INT,
        2000,
        "How long a broker goes without an answer to a fetch of the metadata log before it connects anew.",
        at_least(0),
    )
    controller_quorum_request_timeout_ms: int = _key(
        "controller.quorum.request.timeout.ms",
        _INT,
        2000,
        "How long a request to the controller may take.",
        at_least(0),
    )
    controller_quorum_retry_backoff_ms: int = _key(
        "controller.quorum.retry.backoff.ms",
        _INT,
        20,
        "The pause before a failed request to the controller is sent again.",
        at_least(0),
    )
    controller_quorum_fetch_max_bytes: int = _key(
        "controller.quorum.fetch.max.bytes",
        _INT,
        1048576,
        "The most bytes of the metadata log in one answer.",
        at_least(1),
    )
    broker_heartbeat_interval_ms: int = _key(
        "broker.heartbeat.interval.ms", _INT, 500, "How often a broker tells the controller that it lives."
    )
    broker_session_timeout_ms: int = _key(
        "broker.session.timeout.ms", _INT, 3000, "After how much silence the controller fences a broker."
    )
    initial_broker_registration_timeout_ms: int = _key(
        "initial.broker.registration.timeout.ms",
        _INT,
        60000,
        "How long a starting broker tries to register before it gives up.",
    )
    controlled_shutdown_enable: bool = _key(
        "controlled.shutdown.enable",
        _BOOLEAN,
        True,
        "Whether a leaving broker hands its leaderships over first.",
    )
    metadata_log_dir: str | None = _key(
        "metadata.log.dir", _STRING, None, "Where the metadata log lies; the first of log.dirs if not set."
    )
    metadata_log_segment_bytes: int = _key(
        "metadata.log.segment.bytes",
        _INT,
        1073741824,
        "The largest segment of the metadata log.",
        at_least(8388608),
    )
    metadata_log_segment_ms: int = _key(
        "metadata.log.segment.ms", _LONG, 604800000, "The longest a segment of the metadata log stays active."
    )
    metadata_log_max_record_bytes_between_snapshots: int = _key(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20971520,
        "How many bytes of metadata records make a new snapshot due.",
        at_least(1),
    )
    metadata_log_max_snapshot_interval_ms: int = _key(
        "metadata.log.max.snapshot.interval.ms",
        _LONG,
        3600000,
        "After how long a new snapshot is due if there are new records; 0 for never.",
        at_least(0),
    )
    metadata_max_retention_bytes: int = _key(
        "metadata.max.retention.bytes",
        _LONG,
        104857600,
        "How large metadata log and snapshots may grow before old ones go.",
    )
    metadata_max_retention_ms: int = _key(
        "metadata.max.retention.ms", _LONG, 604800000, "How long metadata log and snapshots are kept."
    )
    metadata_max_idle_interval_ms: int = _key(
        "metadata.max.idle.interval.ms",
        _INT,
        500,
        "How often an idle controller writes a no-op record; 0 for never.",
        at_least(0),
    )

    # Topics
    num_partitions: int = _key(
        "num.partitions", _INT, 1, "How many partitions a topic gets if nobody says.", at_least(1)
    )
    default_replication_factor: int = _key(
        "default.replication.factor",
        _INT,
        1,
        "How many replicas a partition gets if nobody says: the number of racks, at most 3, if not set.",
        at_least(1),
    )
    auto_create_topics_enable: bool = _key(
        "auto.create.topics.enable", _BOOLEAN, True, "Whether asking for a topic's metadata may create it."
    )
    delete_topic_enable: bool = _key("delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted.")
    auto_leader_rebalance_enable: bool = _key(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        True,
        "Whether leadership returns to preferred replicas by itself.",
    )
    leader_imbalance_check_interval_seconds: int = _key(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        300,
        "How often the controller looks for leaderships to return.",
        at_least(1),
    )
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        "Whether a replica outside the ISR may lead, losing records, when no other can.",
    )
    min_insync_replicas: int = _key(
        "min.insync.replicas",
        _INT,
        1,
        "The smallest ISR with which acks=all is acknowledged.",
        at_least(1),
    )

    # Replication and fetching
    replica_lag_time_max_ms: int = _key(
        "replica.lag.time.max.ms", _LONG, 30000, "How long a follower may lag before it leaves the ISR."
    )
    replica_socket_timeout_ms: int = _key(
        "replica.socket.timeout.ms", _INT, 30000, "How long a follower waits for an answer of its leader."
    )
    replica_socket_receive_buffer_bytes: int = _key(
        "replica.socket.receive.buffer.bytes", _INT, 65536, "SO_RCVBUF of a follower's connections."
    )
    replica_fetch_max_bytes: int = _key(
        "replica.fetch.max.bytes",
        _INT,
        1048576,
        "How many bytes a follower asks for a partition; one batch always fits.",
        at_least(0),
    )
    replica_fetch_wait_max_ms: int = _key(
        "replica.fetch.wait.max.ms", _INT, 500, "How long a leader may hold a follower's fetch open."
    )
    replica_fetch_min_bytes: int = _key(
        "replica.fetch.min.bytes", _INT, 1, "How many bytes a follower waits for."
    )
    replica_fetch_response_max_bytes: int = _key(
        "replica.fetch.response.max.bytes",
        _INT,
        10485760,
        "How many bytes a follower asks for at once.",
        at_least(0),
    )
    replica_fetch_backoff_ms: int = _key(
        "replica.fetch.backoff.ms", _INT, 1000, "The pause after a failed fetch of a follower.", at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms: int = _key(
        "replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, "How often high watermarks go to disk."
    )
    num_replica_fetchers: int = _key(
        "num.replica.fetchers", _INT, 1, "How many connections a follower keeps to one leader.", at_least(1)
    )
    fetch_max_bytes: int = _key(
        "fetch.max.bytes", _INT, 57671680, "The most bytes in one answer to a consumer.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = _key(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "How many incremental fetch sessions a broker remembers.",
        at_least(0),
    )
    producer_id_expiration_ms: int = _key(
        "producer.id.expiration.ms",
        _INT,
        86400000,
        "After how long an idle producer's sequence numbers are forgotten.",
        at_least(1),
    )

    # Directories and threads
    log_dir: tuple[str, ...] | None = _key(
        "log.dir",
        _LIST,
        None,
        "The data directory, where log.dirs is not set; the application's own if neither is.",
    )
    log_dirs: tuple[str, ...] | None = _key("log.dirs", _LIST, None, "The data directories.")
    background_threads: int = _key(
        "background.threads", _INT, 10, "How many threads do file work beside the event loop.", at_least(1)
    )
    num_recovery_threads_per_data_dir: int = _key(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "How many threads open and recover the logs of a directory.",
        at_least(1),
    )

    # Logs; topics may override most of these
    message_max_bytes: int = _key(
        "message.max.bytes", _INT, 1048588, "The largest batch of records, compressed.", at_least(0)
    )
    compression_type: str = _key(
        "compression.type",
        _STRING,
        "producer",
        "How batches are stored: as they come (producer), or recompressed.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = _key(
        "compression.gzip.level", _INT, -1, "gzip's level; -1 is its default.", either(-1, between(1, 9))
    )
    compression_lz4_level: int = _key("compression.lz4.level", _INT, 9, "lz4's level.", between(1, 17))
    compression_zstd_level: int = _key(
        "compression.zstd.level", _INT, 3, "zstd's level.", between(-131072, 22)
    )
    log_segment_bytes: int = _key(
        "log.segment.bytes", _INT, 1073741824, "The largest segment file.", at_least(1048576)
    )
    log_roll_ms: int | None = _key(
        "log.roll.ms", _LONG, None, "The longest a segment stays active.", at_least(1)
    )
    log_roll_hours: int = _key(
        "log.roll.hours", _INT, 168, "The same in hours; log.roll.ms wins.", at_least(1)
    )
    log_roll_jitter_ms: int | None = _key(
        "log.roll.jitter.ms", _LONG, None, "How much earlier, at random, a segment is rolled.", at_least(0)
    )
    log_roll_jitter_hours: int = _key(
        "log.roll.jitter.hours", _INT, 0, "The same in hours; log.roll.jitter.ms wins.", at_least(0)
    )
    log_index_size_max_bytes: int = _key(
        "log.index.size.max.bytes", _INT, 10485760, "The largest index file.", at_least(4)
    )
    log_index_interval_bytes: int = _key(
        "log.index.interval.bytes",
        _INT,
        4096,
        "How many bytes of log lie between two index entries.",
        at_least(0),
    )
    log_retention_ms: int | None = _key(
        "log.retention.ms",
        _LONG,
        None,
        "How long records are kept; -1 for ever.",
        either(-1, at_least(1)),
    )
    log_retention_minutes: int | None = _key(
        "log.retention.minutes",
        _INT,
        None,
        "The same in minutes; log.retention.ms wins.",
        either(-1, at_least(1)),
    )
    log_retention_hours: int = _key(
        "log.retention.hours",
        _INT,
        168,
        "The same in hours; log.retention.ms and .minutes win.",
        either(-1, at_least(1)),
    )
    log_retention_bytes: int = _key(
        "log.retention.bytes", _LONG, -1, "How large a partition's log may grow; -1 for no limit."
    )
    log_retention_check_interval_ms: int = _key(
        "log.retention.check.interval.ms",
        _LONG,
        300000,
        "How often old segments are looked for.",
        at_least(1),
    )
    log_cleanup_policy: tuple[str, ...] = _key(
        "log.cleanup.policy",
        _LIST,
        ("delete",),
        "Whether old segments are deleted, compacted, both or neither.",
        some_of("compact", "delete"),
    )
    log_cleaner_delete_retention_ms: int = _key(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86400000,
        "How long compaction keeps tombstones.",
        at_least(0),
    )
    log_cleaner_min_compaction_lag_ms: int = _key(
        "log.cleaner.min.compaction.lag.ms", _LONG, 0, "How long compaction spares a record.", at_least(0)
    )
    log_cleaner_max_compaction_lag_ms: int = _key(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "After how long a record must be considered for compaction.",
        at_least(1),
    )
    log_cleaner_min_cleanable_ratio: float = _key(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "What part of a log must be uncompacted before it is compacted.",
        between(0, 1),
    )
    log_segment_delete_delay_ms: int = _key(
        "log.segment.delete.delay.ms", _LONG, 60000, "How long a deleted segment's files stay.", at_least(0)
    )
    log_flush_interval_messages: int = _key(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "After how many records a log is flushed.",
        at_least(1),
    )
    log_flush_interval_ms: int | None = _key(
        "log.flush.interval.ms", _LONG, None, "How long records may stay unflushed."
    )
    log_flush_scheduler_interval_ms: int = _key(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "How often logs that must be flushed are looked for.",
    )
    log_flush_offset_checkpoint_interval_ms: int = _key(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60000,
        "How often recovery points go to disk.",
        at_least(0),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = _key(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60000,
        "How often log start offsets go to disk.",
        at_least(0),
    )
    log_preallocate: bool = _key(
        "log.preallocate", _BOOLEAN, False, "Whether a segment file takes its full size when it is made."
    )
    log_message_timestamp_type: str = _key(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whether records keep their producer's time or get the time of their append.",
        one_of("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = _key(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far a record's time may lie before the broker's.",
        at_least(0),
    )
    log_message_timestamp_after_max_ms: int = _key(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3600000,
        "How far a record's time may lie after the broker's.",
        at_least(0),
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

    def metadata_log_config(self) -> LogConfig:
        """Return what the metadata log is to obey: nothing of it is ever deleted by age or size."""
        return LogConfig(
            segment_bytes=self.metadata_log_segment_bytes,
            segment_ms=self.metadata_log_segment_ms,
            retention_ms=None,
            retention_bytes=None,
            deletes=False,
            max_message_bytes=METADATA_MAX_BATCH_BYTES,
        )

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
