"""The difference between one metadata image and the next."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.node.metadata.image import ClientQuotaEntity, ConfigResource
from sparklog.node.metadata.schemas import ResourceType
from sparklog.protocol.types import BrokerId


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The difference between two consecutive images.

    `changed_topics` has created topics and those with created or changed partitions, with the numbers of
    these; a topic that was created and deleted in between is in none of the fields. `created_topics` is the
    new part of it. `deleted_topics` were in the older image. `changed_brokers` includes removed ones.
    """

    changed_topics: Mapping[UUID, Set[int]] = field(default_factory=dict)
    created_topics: Set[UUID] = frozenset()
    deleted_topics: Mapping[UUID, str] = field(default_factory=dict)
    changed_configs: Set[ConfigResource] = frozenset()
    changed_brokers: Set[BrokerId] = frozenset()
    changed_client_quotas: Set[ClientQuotaEntity] = frozenset()

    def reconfigures_broker(self, broker_id: BrokerId) -> bool:
        """Whether a broker's dynamic configuration may have changed: its own, or the cluster-wide default."""
        changed = self.changed_configs
        return (ResourceType.BROKER, "") in changed or (ResourceType.BROKER, str(broker_id)) in changed
