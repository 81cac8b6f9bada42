"""The keys of groups (KIP-848), of committed offsets, and of the coordinators' own topics, as in Kafka."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.node.config.definition import ConfigError, Rule
from sparklog.node.config.key_table import broker_key

ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


@dataclass(frozen=True, kw_only=True)
class ConsumerGroupKeys:
    group_consumer_session_timeout_ms: int = broker_key("group.consumer.session.timeout.ms")
    group_consumer_min_session_timeout_ms: int = broker_key("group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = broker_key("group.consumer.max.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = broker_key("group.consumer.heartbeat.interval.ms")
    group_consumer_min_heartbeat_interval_ms: int = broker_key("group.consumer.min.heartbeat.interval.ms")
    group_consumer_max_heartbeat_interval_ms: int = broker_key("group.consumer.max.heartbeat.interval.ms")
    group_consumer_max_size: int = broker_key("group.consumer.max.size")
    group_consumer_assignors: tuple[str, ...] = broker_key(
        "group.consumer.assignors",
        Rule(
            f"a list of {', '.join(ASSIGNORS)}, at least one, none of them twice",
            lambda names: 0 < len(names) == len(set(names)) and set(names) <= set(ASSIGNORS),
        ),
    )
    group_consumer_migration_policy: str = broker_key(
        "group.consumer.migration.policy",
        Rule(f"one of {', '.join(MIGRATION_POLICIES)}", lambda policy: policy.lower() in MIGRATION_POLICIES),
    )
    group_consumer_assignment_interval_ms: int = broker_key("group.consumer.assignment.interval.ms")
    group_consumer_min_assignment_interval_ms: int = broker_key("group.consumer.min.assignment.interval.ms")
    group_consumer_max_assignment_interval_ms: int = broker_key("group.consumer.max.assignment.interval.ms")
    group_consumer_regex_refresh_interval_ms: int = broker_key("group.consumer.regex.refresh.interval.ms")

    @property
    def consumer_group_bounds(self) -> Mapping[str, tuple[int, int, int]]:
        """Default, minimum and maximum of the keys of single groups, without `consumer.`."""
        return {
            "heartbeat.interval.ms": (
                self.group_consumer_heartbeat_interval_ms,
                self.group_consumer_min_heartbeat_interval_ms,
                self.group_consumer_max_heartbeat_interval_ms,
            ),
            "session.timeout.ms": (
                self.group_consumer_session_timeout_ms,
                self.group_consumer_min_session_timeout_ms,
                self.group_consumer_max_session_timeout_ms,
            ),
            "assignment.interval.ms": (
                self.group_consumer_assignment_interval_ms,
                self.group_consumer_min_assignment_interval_ms,
                self.group_consumer_max_assignment_interval_ms,
            ),
        }

    def __post_init__(self) -> None:
        """Check defaults against bounds, and bounds against each other, as Kafka does."""
        for name, (value, least, most) in self.consumer_group_bounds.items():
            if most < least:
                raise ConfigError(
                    f"group.consumer.max.{name}", str(most), f"group.consumer.min.{name} is {least}"
                )
            if not least <= value <= most:
                raise ConfigError(
                    f"group.consumer.{name}",
                    str(value),
                    f"must lie between group.consumer.min.{name} ({least}) and group.consumer.max.{name}"
                    f" ({most})",
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                "group.consumer.heartbeat.interval.ms",
                str(self.group_consumer_heartbeat_interval_ms),
                "must be less than group.consumer.session.timeout.ms"
                f" ({self.group_consumer_session_timeout_ms})",
            )


@dataclass(frozen=True, kw_only=True)
class GroupKeys(ConsumerGroupKeys):
    group_min_session_timeout_ms: int = broker_key("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = broker_key("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = broker_key("group.initial.rebalance.delay.ms")
    group_max_size: int = broker_key("group.max.size")
    offset_metadata_max_bytes: int = broker_key("offset.metadata.max.bytes")
    offsets_retention_minutes: int = broker_key("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = broker_key("offsets.retention.check.interval.ms")

    offsets_topic_num_partitions: int = broker_key("offsets.topic.num.partitions")
    offsets_topic_replication_factor: int = broker_key("offsets.topic.replication.factor")
    offsets_topic_segment_bytes: int = broker_key("offsets.topic.segment.bytes")
    offsets_topic_compression_codec: int = broker_key("offsets.topic.compression.codec")
    offsets_load_buffer_size: int = broker_key("offsets.load.buffer.size")
    offsets_commit_timeout_ms: int = broker_key("offsets.commit.timeout.ms")
    transaction_state_log_num_partitions: int = broker_key("transaction.state.log.num.partitions")
    transaction_state_log_replication_factor: int = broker_key("transaction.state.log.replication.factor")
    transaction_state_log_min_isr: int = broker_key("transaction.state.log.min.isr")
    transaction_state_log_segment_bytes: int = broker_key("transaction.state.log.segment.bytes")
    transaction_state_log_load_buffer_size: int = broker_key("transaction.state.log.load.buffer.size")
