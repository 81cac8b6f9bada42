"""The broker keys of replication, and of a leader's state of followers, consumers and producers."""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import (
    BOOLEAN,
    INT,
    LONG,
    STRING,
    ConfigError,
    Rule,
    at_least,
    config_key,
    either,
)
from sparklog.protocol.types import unless_minus_one

_BY_RACK: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LEADERS: Final = "org.apache.kafka.common.replica.LeaderSelector"


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    replica_lag_time_max_ms: int = config_key(
        LONG, 30000, "How long a follower may lag before it leaves the ISR."
    )
    replica_socket_timeout_ms: int = config_key(
        INT, 30000, "How long a follower waits for an answer of its leader."
    )
    replica_socket_receive_buffer_bytes: int = config_key(
        INT,
        -1,
        "SO_RCVBUF of a follower's connections; -1, unlike Kafka's default, leaves it to the system.",
        either(-1, at_least(1)),
    )
    replica_fetch_max_bytes: int = config_key(
        INT, 1048576, "How many bytes a follower asks for a partition; one batch always fits.", at_least(0)
    )
    replica_fetch_wait_max_ms: int = config_key(
        INT, 500, "How long a leader may hold a follower's fetch open."
    )
    replica_fetch_min_bytes: int = config_key(INT, 1, "How many bytes a follower waits for.")
    replica_fetch_response_max_bytes: int = config_key(
        INT, 10485760, "How many bytes a follower asks for at once.", at_least(0)
    )
    replica_fetch_backoff_ms: int = config_key(
        INT, 1000, "The pause after a failed fetch of a follower.", at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms: int = config_key(
        LONG, 5000, "How often high watermarks go to disk."
    )
    num_replica_fetchers: int = config_key(
        INT, 1, "How many connections a follower keeps to one leader.", at_least(1)
    )
    num_replica_alter_log_dirs_threads: int | None = config_key(
        INT,
        None,
        "How many replicas are copied between a broker's directories at a time; without it, one a directory.",
        at_least(1),
    )
    fetch_max_bytes: int = config_key(
        INT, 57671680, "The most bytes in one answer to a consumer.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = config_key(
        INT, 1000, "How many incremental fetch sessions a broker remembers.", at_least(0)
    )
    replica_selector_class: str | None = config_key(
        STRING,
        None,
        f"{_BY_RACK}: consumers with a client.rack read from a replica in that rack (KIP-392). Without it, "
        f"or with {_LEADERS}, from the leader.",
        Rule(f"empty, {_BY_RACK} or {_LEADERS}", lambda name: name in ("", _BY_RACK, _LEADERS)),
    )
    producer_id_expiration_ms: int = config_key(
        INT,
        86400000,
        "How long the sequence numbers of an idle producer are kept: since its last append, not by the "
        "timestamps of its records.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = config_key(
        INT, 600000, "How often idle producers are looked for.", at_least(1)
    )
    transaction_partition_verification_enable: bool = config_key(
        BOOLEAN,
        True,
        "Whether the coordinator of a transaction verifies its first batch in a partition before the append.",
    )

    add_partitions_to_txn_retry_backoff_ms: int = config_key(
        INT,
        20,
        "The pause before a coordinator that is still ending the previous transaction is asked again.",
        at_least(1),
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = config_key(
        INT, 100, "How long it is asked again before the producer gets an error.", at_least(0)
    )

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
