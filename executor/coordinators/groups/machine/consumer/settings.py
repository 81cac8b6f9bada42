"""The `group.consumer.*` settings of the broker, and what a group has for itself in their place.

Source: Kafka's GroupCoordinatorConfig and GroupConfig.
"""

from enum import StrEnum

from sparklog.config.group_keys import GroupKeys
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.schemas import ResourceType

__all__ = ["MigrationPolicy", "Settings"]


class MigrationPolicy(StrEnum):
    """Which groups with members in them may change their protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group may become a classic one."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class Settings:
    """What holds now: a group's own configuration is in the image, and checked by the controller."""

    def __init__(self, keys: GroupKeys) -> None:
        self.keys = keys
        self.image: MetadataImage = EMPTY_IMAGE
        self.migration_policy = MigrationPolicy(keys.group_consumer_migration_policy.lower())

    @property
    def default_assignor(self) -> str:
        """What assigns where no member names an assignor."""
        return self.keys.group_consumer_assignors[0]

    def session_timeout_ms(self, group_id: str) -> int:
        """Return after which silence a member of the group is removed."""
        default = self.keys.group_consumer_session_timeout_ms
        return self._of_group(group_id, "consumer.session.timeout.ms", default)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often members of the group are to send heartbeats."""
        default = self.keys.group_consumer_heartbeat_interval_ms
        return self._of_group(group_id, "consumer.heartbeat.interval.ms", default)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return how much time lies between two assignments of the group, at least."""
        default = self.keys.group_consumer_assignment_interval_ms
        return self._of_group(group_id, "consumer.assignment.interval.ms", default)

    def _of_group(self, group_id: str, key: str, default: int) -> int:
        configs = self.image.configs.get((ResourceType.GROUP, group_id))
        return default if configs is None or key not in configs else int(configs[key])
