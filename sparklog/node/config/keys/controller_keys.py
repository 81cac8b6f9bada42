"""The keys of the controller: its connections with brokers, and the upkeep of the metadata log.

Kafka's defaults, but for the heartbeat, which is more frequent.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import ConfigError
from sparklog.node.config.key_table import broker_key
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
    controller_quorum_bootstrap_servers_value: tuple[str, ...] = broker_key(
        "controller.quorum.bootstrap.servers"
    )
    controller_quorum_request_timeout_ms: int = broker_key("controller.quorum.request.timeout.ms")
    controller_quorum_fetch_timeout_ms: int = broker_key("controller.quorum.fetch.timeout.ms")
    broker_heartbeat_interval_ms: int = broker_key("broker.heartbeat.interval.ms")
    broker_session_timeout_ms: int = broker_key("broker.session.timeout.ms")
    initial_broker_registration_timeout_ms: int = broker_key("initial.broker.registration.timeout.ms")
    sparklog_start_timeout_ms: int = broker_key("sparklog.start.timeout.ms")
    sparklog_read_only: bool = broker_key(READ_ONLY_KEY)
    sparklog_balance_enable: str = broker_key(BALANCE_ENABLE_KEY)
    sparklog_replace_after_ms: int = broker_key(REPLACE_AFTER_KEY)
    sparklog_racks: int | None = broker_key(RACKS_KEY, assigned=True)
    sparklog_brokers_per_rack: int | None = broker_key(BROKERS_PER_RACK_KEY, assigned=True)
    sparklog_max_brokers: int = broker_key(MAX_BROKERS_KEY)
    controlled_shutdown_enable: bool = broker_key("controlled.shutdown.enable")
    metadata_log_dir: str | None = broker_key("metadata.log.dir")
    metadata_log_segment_bytes: int = broker_key("metadata.log.segment.bytes")
    metadata_log_segment_ms: int = broker_key("metadata.log.segment.ms")
    metadata_log_max_record_bytes_between_snapshots: int = broker_key(
        "metadata.log.max.record.bytes.between.snapshots"
    )
    metadata_log_max_snapshot_interval_ms: int = broker_key("metadata.log.max.snapshot.interval.ms")
    metadata_max_retention_bytes: int = broker_key("metadata.max.retention.bytes")
    metadata_max_retention_ms: int = broker_key("metadata.max.retention.ms")

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
