"""The keys of groups (KIP-848) and committed offsets: Kafka's names, types, limits and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.node.config.definition import (
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    ConfigError,
    Rule,
    at_least,
    config_key,
)

ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


@dataclass(frozen=True, kw_only=True)
class ConsumerGroupKeys:
    group_consumer_session_timeout_ms: int = config_key(
        INT, 45000, "The silence after which a member of a consumer group is removed.", at_least(1)
    )
    group_consumer_min_session_timeout_ms: int = config_key(
        INT, 45000, "The shortest consumer.session.timeout.ms that a group may have for itself.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = config_key(INT, 60000, "The longest one.", at_least(1))
    group_consumer_heartbeat_interval_ms: int = config_key(
        INT,
        5000,
        "The heartbeat interval that the coordinator gives to members of consumer groups.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = config_key(
        INT,
        5000,
        "The shortest consumer.heartbeat.interval.ms that a group may have for itself.",
        at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = config_key(INT, 15000, "The longest one.", at_least(1))
    group_consumer_max_size: int = config_key(
        INT, INT_MAX, "How many members a consumer group may have.", at_least(1)
    )
    group_consumer_assignors: tuple[str, ...] = config_key(
        LIST,
        ASSIGNORS,
        "The assignors that members of consumer groups may name; the first is for groups that name none.",
        Rule(
            f"a list of {', '.join(ASSIGNORS)}, at least one, none of them twice",
            lambda names: 0 < len(names) == len(set(names)) and set(names) <= set(ASSIGNORS),
        ),
    )
    group_consumer_migration_policy: str = config_key(
        STRING,
        "bidirectional",
        "Which groups with members change their protocol when one joins that speaks the other: classic groups"
        " (upgrade), consumer groups when the last member of their own protocol leaves (downgrade), both, or"
        " none (disabled; members of the classic protocol can't join consumer groups then).",
        Rule(f"one of {', '.join(MIGRATION_POLICIES)}", lambda policy: policy.lower() in MIGRATION_POLICIES),
    )
    group_consumer_assignment_interval_ms: int = config_key(
        INT, 1000, "How much time lies between two assignments of a consumer group, at least.", at_least(0)
    )
    group_consumer_min_assignment_interval_ms: int = config_key(
        INT, 0, "The shortest consumer.assignment.interval.ms that a group may have for itself.", at_least(0)
    )
    group_consumer_max_assignment_interval_ms: int = config_key(INT, 15000, "The longest one.", at_least(0))
    group_consumer_regex_refresh_interval_ms: int = config_key(
        INT,
        600000,
        "How often the topics of regular expressions are found out again when no topic was created.",
        at_least(10_000),
    )

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
    group_min_session_timeout_ms: int = config_key(
        INT, 6000, "The shortest session.timeout.ms that members of the classic protocol may have."
    )
    group_max_session_timeout_ms: int = config_key(
        INT, 1800000, "The longest session.timeout.ms that members of the classic protocol may have."
    )
    group_initial_rebalance_delay_ms: int = config_key(
        INT,
        3000,
        "How long the first rebalance of a classic group waits for more members; each new member extends it.",
    )
    group_max_size: int = config_key(INT, INT_MAX, "How many members a classic group may have.", at_least(1))
    offset_metadata_max_bytes: int = config_key(
        INT, 4096, "How long the metadata of a committed offset may be, in characters, as Kafka counts them."
    )
    offsets_retention_minutes: int = config_key(
        INT,
        10080,
        "How long committed offsets are kept: since the group is empty, or since the commit without a group.",
        at_least(1),
    )
    offsets_retention_check_interval_ms: int = config_key(
        LONG, 600000, "How often expired offsets are looked for.", at_least(1)
    )
