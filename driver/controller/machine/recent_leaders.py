"""Partitions whose leader has just changed, which rest before the controller changes it again. Pure.

A producer that a leader change hits tries again after 0.1 s. A second change before that attempt has
succeeded doubles the pause, and so does each further one, up to 1 s: four leader changes within a second
silence a partition for two or three. So moves by the controller itself, for balance or off surplus brokers,
begin at least `REST_MS` after the last change, and the periodic election of preferred leaders leaves out what
rests. Elections because of a broker's end do not wait.

Order for the caller: `changed` with every replay, then `tick` before moves are chosen. Both take a time that
does not depend on the number of partitions that rest.
"""

from typing import Final

from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import TopicIdPartition

REST_MS: Final = 600
"""Longer than two attempts of a producer; a rest takes twice as long at most."""


class RecentLeaders:
    def __init__(self) -> None:
        self.ended = 0
        """The number of times that rests have ended."""
        self._new: set[TopicIdPartition] = set()
        """Leaders that changed since `_since_ms`."""
        self._resting: set[TopicIdPartition] = set()
        """Leaders that changed in the `REST_MS` before that."""
        self._since_ms: int | None = None

    def __contains__(self, key: TopicIdPartition) -> bool:
        return key in self._new or key in self._resting

    def changed(self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta) -> None:
        for topic_id, numbers in delta.changed_topics.items():
            for number in numbers:
                was, now = before.topics.partition(topic_id, number), after.topics.partition(topic_id, number)
                if was is not None and now is not None and now.leader not in (None, was.leader):
                    self._new.add(TopicIdPartition(topic_id, number))

    def tick(self, now_ms: int) -> None:
        """End the rests that have lasted long enough."""
        if not self._new and not self._resting:
            self._since_ms = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms >= REST_MS:
            self.ended += bool(self._resting)
            self._new, self._resting, self._since_ms = set(), self._new, now_ms
