"""The replay of the metadata log, and the images to publish. Pure.

Rules kept:
- The first image is published when it holds everything that was committed at the first fetch and, among it,
  the registration of this very incarnation. An older image may still name this broker as leader of
  partitions by virtue of a process that is dead.
- Images are published in order, each with what is different from the one before.
- It begins with the snapshot that the replica begins with, and goes over to one that was downloaded as if
  all that lies between had been replayed at once.

Order for the caller: `fetched` and `begin_behind` as it happens. Then publish what `next_publication` gives;
if that is nothing, read what is `unread` and `replay` it; and so on until there is neither. Last, act on
`caught_up_ms`.

Source: Kafka's MetadataLoader.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import TypeVar
from uuid import UUID

from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def difference(older: MetadataImage, newer: MetadataImage) -> MetadataDelta:
    """Return the delta between two images that no batch joins: one came from a snapshot.

    It names all differences, and no equal keys. A topic that was deleted and created again under its name
    is both in `deleted_topics` and in `created_topics`.
    """
    old_topics, new_topics = older.topics.by_id, newer.topics.by_id
    changed_topics: dict[UUID, Set[int]] = {}
    for topic_id, topic in new_topics.items():
        old_topic = old_topics.get(topic_id)
        if old_topic is None:
            changed_topics[topic_id] = frozenset(topic.partitions)
        elif old_topic is not topic and (partitions := _changed(old_topic.partitions, topic.partitions)):
            changed_topics[topic_id] = partitions
    return MetadataDelta(
        changed_topics=changed_topics,
        created_topics=new_topics.keys() - old_topics.keys(),
        deleted_topics={
            topic_id: old_topics[topic_id].name for topic_id in old_topics.keys() - new_topics.keys()
        },
        changed_configs=_changed(older.configs, newer.configs),
        changed_brokers=_changed(older.brokers, newer.brokers),
        changed_client_quotas=_changed(older.client_quotas, newer.client_quotas),
    )


def _changed(older: Mapping[_Key, _Value], newer: Mapping[_Key, _Value]) -> frozenset[_Key]:
    """Return the keys with different values in the two, or with a value in only one."""
    return frozenset(key for key in older.keys() | newer.keys() if older.get(key) != newer.get(key))


class MetadataLoader:
    """The position of one broker in its copy of the metadata log."""

    def __init__(self, node_id: BrokerId, image: MetadataImage) -> None:
        self.image = image
        """All that was replayed."""
        self.has_published = False
        self._node_id = node_id
        self._published = EMPTY_IMAGE
        self._delta: MetadataDelta | None = None
        """The changes that led to `image`, if records did."""
        self._committed: Offset = 0
        self._target: Offset | None = None
        self._answers: deque[tuple[Offset, int]] = deque()
        """Up to where each answered fetch said that the log is committed, and when it was sent."""

    def fetched(self, committed: Offset, leader_high_watermark: Offset, sent_ms: int) -> None:
        """Note the answer to a fetch sent at `sent_ms`: the own log is committed below `committed`."""
        self._committed = max(self._committed, committed)
        if self._target is None:
            self._target = leader_high_watermark
        self._answers.append((leader_high_watermark, sent_ms))

    def begin_behind(self, image: MetadataImage) -> bool:
        """Note that the log begins behind a snapshot with `image`; return whether the image is new."""
        self._committed = max(self._committed, image.end_offset)
        if image.end_offset <= self.image.end_offset:
            return False
        self.image, self._delta = image, None
        return True

    @property
    def unread(self) -> tuple[Offset, Offset] | None:
        """The first offset to replay and the end, exclusive; None if there is nothing to replay."""
        end_offset = self.image.end_offset
        return (end_offset, self._committed) if end_offset < self._committed else None

    def replay(
        self, records: Sequence[MetadataRecord], last_offset: Offset, leader_epoch: LeaderEpoch
    ) -> None:
        self.image, self._delta = replay_records(self.image, records, last_offset, leader_epoch)

    def next_publication(
        self, broker_epoch: BrokerEpoch | None
    ) -> tuple[MetadataImage, MetadataDelta] | None:
        """Return the image to publish now and what is different in it; None if there is none.

        `broker_epoch` is that of this incarnation, None before it is registered.
        """
        before, delta = self._published, self._delta
        if self.image is before or not (self.has_published or self._may_begin(broker_epoch)):
            return None
        if delta is None or not self.has_published:
            delta = difference(before, self.image)
        self._published, self.has_published = self.image, True
        return self.image, delta

    def caught_up_ms(self) -> int | None:
        """Return, once, the time of the last sent fetch of whose answer nothing is left to apply."""
        newest_ms = None
        while self._answers and self._answers[0][0] <= self.image.end_offset:
            newest_ms = self._answers.popleft()[1]
        return newest_ms if self.has_published else None

    def _may_begin(self, broker_epoch: BrokerEpoch | None) -> bool:
        registration = self.image.brokers.get(self._node_id)
        return (
            self._target is not None
            and self.image.end_offset >= self._target
            and self.unread is None
            and registration is not None
            and registration.broker_epoch == broker_epoch
        )
