"""The keys of the controller: its connections with brokers, and the upkeep of the metadata log.

Kafka's defaults, but for the heartbeat, which is more frequent.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigError,
    at_least,
    between,
    config_key,
    one_of,
)
from sparklog.node.storage.log_config import LogConfig

READ_ONLY_KEY: Final = "sparklog.read.only"
BALANCE_ENABLE_KEY: Final = "sparklog.balance.enable"
REPLACE_AFTER_KEY: Final = "sparklog.replace.after.ms"
RACKS_KEY: Final = "sparklog.racks"
MAX_BROKERS_KEY: Final = "sparklog.max.brokers"
BROKERS_PER_RACK_KEY: Final = "sparklog.brokers.per.rack"
METADATA_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The largest batch of the metadata log, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """Kafka's keys of snapshots; None is no limit."""

    max_record_bytes: int
    """metadata.log.max.record.bytes.between.snapshots"""
    max_interval_ms: int | None
    """metadata.log.max.snapshot.interval.ms"""
    retention_bytes: int | None
    """metadata.max.retention.bytes"""
    retention_ms: int | None
    """metadata.max.retention.ms"""


@dataclass(frozen=True, kw_only=True)
class ControllerKeys:
    controller_quorum_bootstrap_servers_value: tuple[str, ...] = config_key(
        LIST,
        ("127.0.0.1:0",),
        "The address of the controller, in the driver, to listen on and to advertise to brokers and"
        " clients: a name or"
        " address of the driver's host, never 0.0.0.0, or spark.driver.host for the value of that property"
        " of Spark's; port 0 takes a free one. Each address is for the"
        " clients of one of the brokers' listeners, whose name may stand before it as name://host:port; it is"
        " the first listener if not. Brokers go to the first address.",
        name="controller.quorum.bootstrap.servers",
    )
    controller_quorum_request_timeout_ms: int = config_key(
        INT,
        2000,
        "How long a request of the quorum may take; a broker's to the controller, half of"
        " broker.session.timeout.ms if that is longer.",
        at_least(0),
    )
    controller_quorum_fetch_timeout_ms: int = config_key(
        INT,
        2000,
        "After how long without a fetch from a majority of the voters the controller renews no lease, and for"
        " how long after an answer to its fetch a voter grants no pre-vote.",
        at_least(0),
    )
    broker_heartbeat_interval_ms: int = config_key(
        INT, 500, "How often a broker sends a heartbeat to the controller."
    )
    broker_session_timeout_ms: int = config_key(
        INT, 9000, "The silence after which the controller fences a broker."
    )
    initial_broker_registration_timeout_ms: int = config_key(
        INT, 60000, "How long a starting broker tries to register before it gives up."
    )
    sparklog_start_timeout_ms: int = config_key(
        INT,
        120000,
        "How long a start waits for every broker before it fails. A start over the directories of an earlier"
        " cluster waits without a limit for a majority of its voters. Not a key of Kafka's.",
        at_least(1),
    )
    sparklog_read_only: bool = config_key(
        BOOLEAN,
        False,
        "Whether brokers refuse what clients write. An orderly stop of a cluster with a tier sets it for all"
        " brokers, and the next start removes it. Not a key of Kafka's.",
        name=READ_ONLY_KEY,
    )
    sparklog_balance_enable: str = config_key(
        STRING,
        "true",
        "When the controller moves replicas by itself: after brokers were added or lost for good (true),"
        " whenever brokers differ too much (always), or never (false). Not a key of Kafka's.",
        one_of("true", "always", "false"),
        name=BALANCE_ENABLE_KEY,
    )
    sparklog_replace_after_ms: int = config_key(
        LONG,
        600000,
        "After how long the replicas of a broker that is away are placed on other brokers. Not a key of"
        " Kafka's.",
        at_least(0),
        name=REPLACE_AFTER_KEY,
    )
    sparklog_racks: int | None = config_key(
        INT,
        None,
        "The number of racks while the application runs, changed for all brokers by Cluster.scale,"
        " sparklog-scale or IncrementalAlterConfigs; at least that of the application's start. Not a key of"
        " Kafka's.",
        between(1, 1000),
        name=RACKS_KEY,
        assigned=True,
    )
    sparklog_brokers_per_rack: int | None = config_key(
        INT,
        None,
        "The number of brokers of a rack while the application runs, changed like sparklog.racks. Not a key"
        " of Kafka's.",
        between(1, 1000),
        name=BROKERS_PER_RACK_KEY,
        assigned=True,
    )
    sparklog_max_brokers: int = config_key(
        INT,
        100,
        "The most brokers to which a running cluster may be scaled: each has a thread in the driver, and a"
        " slot of Spark's. Not a key of Kafka's.",
        at_least(1),
        name=MAX_BROKERS_KEY,
    )
    controlled_shutdown_enable: bool = config_key(
        BOOLEAN, True, "Whether a leaving broker hands its leaderships over first."
    )
    metadata_log_dir: str | None = config_key(
        STRING, None, "Where the metadata log lies; the first of log.dirs if not set."
    )
    metadata_log_segment_bytes: int = config_key(
        INT, 1073741824, "The largest segment of the metadata log.", at_least(8388608)
    )
    metadata_log_segment_ms: int = config_key(
        LONG, 604800000, "The longest a segment of the metadata log stays active."
    )
    metadata_log_max_record_bytes_between_snapshots: int = config_key(
        LONG,
        20971520,
        "After how many bytes of new records the next snapshot of the metadata log is written.",
        at_least(1),
    )
    metadata_log_max_snapshot_interval_ms: int = config_key(
        LONG,
        3600000,
        "After how long the next snapshot is written if there are new records at all; 0 for never.",
        at_least(0),
    )
    metadata_max_retention_bytes: int = config_key(
        LONG,
        104857600,
        "How large the metadata log and its snapshots grow before the oldest go, -1 for without limit. The"
        " newest snapshot and the active segment stay.",
    )
    metadata_max_retention_ms: int = config_key(
        LONG,
        604800000,
        "How old the last record in a snapshot may be before the snapshot and all before it go, -1 for"
        " without limit. The newest snapshot and the active segment stay.",
    )

    def __post_init__(self) -> None:
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise ConfigError(
                "broker.heartbeat.interval.ms",
                str(self.broker_heartbeat_interval_ms),
                f"must be at most half of broker.session.timeout.ms ({self.broker_session_timeout_ms})",
            )

    @property
    def broker_request_timeout_ms(self) -> int:
        """How long a broker waits for the controller's answer, in which its lease may be renewed.

        Half a session, as for heartbeats, so that two attempts fit into one. An attempt that is given up
        sooner takes its connection with it, and a controller that is only slow has all the more to do.
        """
        return max(self.controller_quorum_request_timeout_ms, self.broker_session_timeout_ms // 2)

    def metadata_log_config(self) -> LogConfig:
        """Return the configuration of the metadata log: no retention, since records go by snapshots alone."""
        return LogConfig(
            segment_bytes=self.metadata_log_segment_bytes,
            segment_ms=self.metadata_log_segment_ms,
            retention_ms=None,
            retention_bytes=None,
            deletes=False,
            max_message_bytes=METADATA_MAX_BATCH_BYTES,
        )

    def snapshot_limits(self) -> SnapshotLimits:
        max_bytes, max_age_ms = self.metadata_max_retention_bytes, self.metadata_max_retention_ms
        return SnapshotLimits(
            max_record_bytes=self.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=self.metadata_log_max_snapshot_interval_ms or None,
            retention_bytes=None if max_bytes < 0 else max_bytes,
            retention_ms=None if max_age_ms < 0 else max_age_ms,
        )
