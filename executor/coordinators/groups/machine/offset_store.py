"""The committed offsets of a shard's groups, and those of open transactions, which are not committed yet.

Only replaying changes them. An offset that was committed in a transaction is weighed, when that ends, by
where it was appended against what was committed outside meanwhile: the later one stays, as in the log after
it was compacted.

Source: Kafka's OffsetMetadataManager (Offsets, OpenTransactions).
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.types import LeaderEpoch, Offset, ProducerId, TimestampMs

__all__ = ["CommittedOffset", "OffsetStore"]


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str
    commit_timestamp_ms: TimestampMs
    expire_timestamp_ms: TimestampMs | None
    """Only of clients before OffsetCommit 5, who said themselves how long it is kept."""
    topic_id: UUID | None
    """None where the client did not say it, and the coordinator did not either."""

    def is_of_topic(self, topic_id: UUID | None) -> bool:
        """Whether it is of this topic, and not of an earlier one of the name; unknown ids are of any."""
        return self.topic_id is None or topic_id is None or self.topic_id == topic_id


_Key = tuple[str, str, int]
"""Group, topic, partition."""

_NO_TOPICS: Final[Mapping[str, Mapping[int, CommittedOffset]]] = MappingProxyType({})


class OffsetStore:
    """The offsets; see the module."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[ProducerId, dict[_Key, tuple[int, CommittedOffset]]] = {}
        """With how many records had been replayed before it."""
        self._pending_producers: dict[str, dict[tuple[str, int], set[ProducerId]]] = {}
        self._committed_during: dict[_Key, int] = {}
        """When a partition with pending offsets was committed outside their transactions, in records."""
        self._replayed = 0

    def __iter__(self) -> Iterator[str]:
        """Iterate over the groups that have committed or pending offsets."""
        yield from self._groups
        yield from (group for group in self._pending_producers if group not in self._groups)

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return what a group has committed, by topic and partition."""
        return self._groups.get(group_id, _NO_TOPICS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return what is committed for a partition."""
        return self.topics(group_id).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed for the partition."""
        pending = self._pending_producers.get(group_id)
        return pending is not None and (topic, partition) in pending

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Iterate over the partitions for which open transactions have committed."""
        yield from self._pending_producers.get(group_id, ())

    def has_open_transactions(self, group_id: str) -> bool:
        """Whether open transactions have committed for the group."""
        return group_id in self._pending_producers

    # ---- replaying -------------------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """An offset is committed."""
        self._replayed += 1
        self._put(group_id, topic, partition, committed)
        if self._pending_producers and self.is_pending(group_id, topic, partition):
            self._committed_during[group_id, topic, partition] = self._replayed

    def put_pending(
        self, producer_id: ProducerId, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """An offset is committed in a transaction that is open."""
        self._replayed += 1
        pending = self._pending.setdefault(producer_id, {})
        pending[group_id, topic, partition] = self._replayed, committed
        partitions = self._pending_producers.setdefault(group_id, {})
        partitions.setdefault((topic, partition), set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """A tombstone: what was committed has gone, in open transactions too."""
        self._replayed += 1
        topics = self._groups.get(group_id)
        if topics is not None and topic in topics:
            partitions = topics[topic]
            partitions.pop(partition, None)
            if not partitions:
                del topics[topic]
            if not topics:
                del self._groups[group_id]
        for producer_id in tuple(self._pending_producers.get(group_id, {}).get((topic, partition), ())):
            pending = self._pending[producer_id]
            del pending[group_id, topic, partition]
            if not pending:
                del self._pending[producer_id]
            self._no_more_pending(producer_id, (group_id, topic, partition))

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """What a producer's transaction has committed is committed now, or is forgotten."""
        for key, (position, offset) in self._pending.pop(producer_id, {}).items():
            if committed and self._committed_during.get(key, 0) < position:
                self._put(*key, offset)
                # Where it was appended counts, not where its transaction ended.
                self._committed_during[key] = position
            self._no_more_pending(producer_id, key)

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def _no_more_pending(self, producer_id: ProducerId, key: _Key) -> None:
        group_id, topic, partition = key
        partitions = self._pending_producers[group_id]
        producers = partitions[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del partitions[topic, partition]
            self._committed_during.pop(key, None)
        if not partitions:
            del self._pending_producers[group_id]
