"""The broker's `group.consumer.*` settings, and a group's own in their place.

Source: Kafka's GroupCoordinatorConfig and GroupConfig.
"""

from enum import StrEnum
from typing import Final

from sparklog.node.config import BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.schemas import ResourceType

_ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"


class MigrationPolicy(StrEnum):
    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class Settings:
    """Effective settings; a group's own configuration is in the image, validated by the controller.

    The validation used the bounds of that time; a value outside of the present bounds is replaced by the
    bound, as in Kafka 4.3.
    """

    def __init__(self, keys: BrokerConfig) -> None:
        self._started_with = self.keys = keys
        self._image = EMPTY_IMAGE
        self.migration_policy = MigrationPolicy(keys.group_consumer_migration_policy.lower())

    @property
    def image(self) -> MetadataImage:
        return self._image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if self._assignment_interval(image) != self._assignment_interval(before):
            own = image.broker_configs(self._started_with.node_id)
            self.keys = with_dynamic(self._started_with, image.broker_configs(None), own)

    def _assignment_interval(self, image: MetadataImage) -> str | None:
        """Return the only one of the broker's group keys that can be changed while it runs."""
        of_all = image.broker_configs(None).get(_ASSIGNMENT_INTERVAL)
        return image.broker_configs(self._started_with.node_id).get(_ASSIGNMENT_INTERVAL, of_all)

    @property
    def default_assignor(self) -> str:
        return self.keys.group_consumer_assignors[0]

    def session_timeout_ms(self, group_id: str) -> int:
        keys = self.keys
        least, most = keys.group_consumer_min_session_timeout_ms, keys.group_consumer_max_session_timeout_ms
        own = self._of_group(group_id, "consumer.session.timeout.ms", least, most)
        return keys.group_consumer_session_timeout_ms if own is None else own

    def heartbeat_interval_ms(self, group_id: str) -> int:
        keys = self.keys
        least = keys.group_consumer_min_heartbeat_interval_ms
        most = keys.group_consumer_max_heartbeat_interval_ms
        own = self._of_group(group_id, "consumer.heartbeat.interval.ms", least, most)
        return keys.group_consumer_heartbeat_interval_ms if own is None else own

    def assignment_interval_ms(self, group_id: str) -> int:
        keys = self.keys
        least = keys.group_consumer_min_assignment_interval_ms
        most = keys.group_consumer_max_assignment_interval_ms
        own = self._of_group(group_id, "consumer.assignment.interval.ms", least, most)
        return keys.group_consumer_assignment_interval_ms if own is None else own

    def _of_group(self, group_id: str, key: str, least: int, most: int) -> int | None:
        configs = self.image.configs.get((ResourceType.GROUP, group_id))
        return None if configs is None or key not in configs else min(max(int(configs[key]), least), most)
