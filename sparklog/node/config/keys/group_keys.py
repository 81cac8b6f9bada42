"""The keys of groups and committed offsets: Kafka's names, types, limits and defaults."""

from dataclasses import dataclass

from sparklog.node.config.definition import INT, INT_MAX, LONG, at_least, config_key
from sparklog.node.config.keys.consumer_group_keys import ConsumerGroupKeys


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
