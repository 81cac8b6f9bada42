"""The cluster's metadata at one offset of `__cluster_metadata`: what all records up to it add up to.

An image never changes. `MetadataImage.apply` takes the records of one batch and returns the next image
with a delta that says what is different; what the batch did not touch is shared between the two. A batch
that touches k partitions costs one copy of the topic directory plus k, whatever the cluster's size.

Rule: controller and brokers that have applied the same offset hold equal images. So nothing but records
goes in, and a record that cannot follow from the image before it raises instead of being skipped.

Order for callers: apply every batch exactly once and in order; publish the new image before acting on the
delta. Records between BeginTransaction and EndTransaction (KIP-868) take effect together at its end.

Source: Kafka's org.apache.kafka.image; KIP-631.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sparklog.endpoints import SecurityProtocol
from sparklog.metadata.delta import ConfigResource, MetadataDelta, TopicImage, TopicsImage
from sparklog.metadata.registrations import BrokerRegistration, FeatureRange, PartitionRegistration
from sparklog.metadata.replay import Replay
from sparklog.metadata.schemas import LeaderRecoveryState, MetadataRecord, ResourceType
from sparklog.types import BrokerId, LeaderEpoch, Offset, ProducerId

__all__ = [
    "EMPTY_IMAGE",
    "BrokerRegistration",
    "ConfigResource",
    "FeatureRange",
    "LeaderRecoveryState",
    "MetadataDelta",
    "MetadataImage",
    "PartitionRegistration",
    "ResourceType",
    "SecurityProtocol",
    "TopicImage",
    "TopicsImage",
]

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All metadata at `offset`, the offset of the last record that went in (`None` before the first).

    `leader_epoch` is that of the controller that wrote it. `open_transaction` holds the records of a metadata
    transaction whose end has not been seen; none of them shows in the rest of the image.
    """

    offset: Offset | None = None
    leader_epoch: LeaderEpoch = 0
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = 0
    open_transaction: tuple[MetadataRecord, ...] | None = None

    def apply(
        self, records: Sequence[MetadataRecord], offset: Offset, leader_epoch: LeaderEpoch
    ) -> tuple["MetadataImage", MetadataDelta]:
        """Return the image after the records, the last of which has `offset`, and what they changed.

        Raises:
            MetadataReplayError: a record cannot follow from this image; the subclass says why. The image
                itself is unharmed.
        """
        replay = Replay(self)
        for record in records:
            replay.replay(record)
        return replay.finish(offset, leader_epoch)

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not in the image, which is where to fetch on."""
        return 0 if self.offset is None else self.offset + 1

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Return the dynamic configuration of a topic, empty if it has none."""
        return self.configs.get((ResourceType.TOPIC, topic), _EMPTY)

    def broker_configs(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        """Return the dynamic configuration of one broker, or with `None` what is set for all brokers."""
        return self.configs.get((ResourceType.BROKER, "" if broker_id is None else str(broker_id)), _EMPTY)


EMPTY_IMAGE: Final = MetadataImage()
"""Before the first record."""
