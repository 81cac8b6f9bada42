"""The broker keys of replication, and of a leader's state of followers, consumers and producers."""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import ConfigError, Rule
from sparklog.node.config.key_table import broker_key
from sparklog.protocol.types import unless_minus_one

_BY_RACK: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LEADERS: Final = "org.apache.kafka.common.replica.LeaderSelector"


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    replica_lag_time_max_ms: int = broker_key("replica.lag.time.max.ms")
    replica_socket_timeout_ms: int = broker_key("replica.socket.timeout.ms")
    replica_socket_receive_buffer_bytes: int = broker_key("replica.socket.receive.buffer.bytes")
    replica_fetch_max_bytes: int = broker_key("replica.fetch.max.bytes")
    replica_fetch_wait_max_ms: int = broker_key("replica.fetch.wait.max.ms")
    replica_fetch_min_bytes: int = broker_key("replica.fetch.min.bytes")
    replica_fetch_response_max_bytes: int = broker_key("replica.fetch.response.max.bytes")
    replica_fetch_backoff_ms: int = broker_key("replica.fetch.backoff.ms")
    replica_high_watermark_checkpoint_interval_ms: int = broker_key(
        "replica.high.watermark.checkpoint.interval.ms"
    )
    num_replica_fetchers: int = broker_key("num.replica.fetchers")
    num_replica_alter_log_dirs_threads: int | None = broker_key("num.replica.alter.log.dirs.threads")
    fetch_max_bytes: int = broker_key("fetch.max.bytes")
    max_incremental_fetch_session_cache_slots: int = broker_key("max.incremental.fetch.session.cache.slots")
    replica_selector_class: str | None = broker_key(
        "replica.selector.class",
        Rule(f"empty, {_BY_RACK} or {_LEADERS}", lambda name: name in ("", _BY_RACK, _LEADERS)),
    )
    producer_id_expiration_ms: int = broker_key("producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms: int = broker_key("producer.id.expiration.check.interval.ms")
    transaction_partition_verification_enable: bool = broker_key("transaction.partition.verification.enable")

    add_partitions_to_txn_retry_backoff_ms: int = broker_key("add.partitions.to.txn.retry.backoff.ms")
    add_partitions_to_txn_retry_backoff_max_ms: int = broker_key("add.partitions.to.txn.retry.backoff.max.ms")

    def __post_init__(self) -> None:
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

    @property
    def selects_replicas_by_rack(self) -> bool:
        return self.replica_selector_class == _BY_RACK

    @property
    def replica_receive_buffer_bytes(self) -> int | None:
        """SO_RCVBUF of a follower's connections, `None` to leave it to the system."""
        return unless_minus_one(self.replica_socket_receive_buffer_bytes)
