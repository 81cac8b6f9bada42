"""Deletion of offsets that have expired or belong to deleted topics (KIP-211).

A group may have a million offsets, so a partition is scanned in steps: each looks at a bounded number of
groups and offsets, and decides only about those, as other decisions are made between two steps. The
tombstones of a step are one batch, which must be small enough to be appended: a group's name may have 32,767
bytes, and a refused batch would leave the offsets of all its groups.

An empty group without offsets is deleted with its last offset.

Source: Kafka's GroupCoordinatorShard.cleanupGroupMetadata, OffsetMetadataManager.cleanupExpiredOffsets.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.groups.machine.groups import Groups
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetAndMetadata
from sparklog.executor.coordinators.groups.machine.offsets import Offsets, offset_tombstone
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.protocol.types import TimestampMs

STEP_ITEMS: Final = 1000
"""The most groups and offsets that a step looks at, and so the most records of one batch."""
_BATCH_BYTES: Final = 16_384
"""Bytes of names in one batch after which the next begins, as in the transactions' coordinator."""
_RECORD_BYTES: Final = 32
"""Bytes of a tombstone besides its names, rounded up."""


class TombstoneBatch:
    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= _BATCH_BYTES

    def add(self, record: CoordinatorRecord, *names: str) -> None:
        self.records.append(record)
        self._size_bytes += _RECORD_BYTES + sum(len(name.encode()) for name in names)


def expiration_steps(
    groups: Groups, offsets: Offsets, now_ms: TimestampMs, *, retention_ms: int
) -> Iterator[list[CoordinatorRecord]]:
    """Iterate over batches of tombstones; groups may change between two of them."""
    batch = TombstoneBatch()
    looked_at = 0
    for group_id in groups.ids():
        expired = 0
        """Expired offsets of the group whose tombstones are not replayed yet."""
        for topic in tuple(offsets.store.topics(group_id)):
            for partition in tuple(offsets.store.topics(group_id).get(topic, ())):
                looked_at += 1
                if looked_at >= STEP_ITEMS or batch.is_full:
                    yield batch.records
                    batch, looked_at, expired = TombstoneBatch(), 0, 0
                group = groups.get(group_id)
                committed = offsets.store.get(group_id, topic, partition)
                if (
                    group is not None
                    and committed is not None
                    and not group.is_subscribed_to(topic)
                    and _is_expired(group, committed, now_ms, retention_ms)
                    and not offsets.store.is_pending(group_id, topic, partition)
                ):
                    batch.add(offset_tombstone(group_id, topic, partition), group_id, topic)
                    expired += 1
        if batch.is_full or (expired and expired == sum(map(len, offsets.store.topics(group_id).values()))):
            yield batch.records
            batch, looked_at = TombstoneBatch(), 0
        looked_at += 1
        group = groups.get(group_id)
        if (
            group is not None
            and group.is_empty
            and not offsets.store.topics(group_id)
            and not offsets.store.has_open_transactions(group_id)
        ):
            for record in group.tombstones():
                batch.add(record, group_id)
    yield batch.records


def deleted_topics_steps(
    offsets: Offsets, deleted_topics: Mapping[UUID, str]
) -> Iterator[list[CoordinatorRecord]]:
    """Iterate over batches of tombstones for offsets of deleted topics.

    Between two of them topics of the same names may be created, with new commits.
    """
    batch = TombstoneBatch()
    looked_at = 0
    for group_id in offsets.store.group_ids():
        for topic_id, topic in deleted_topics.items():
            for partition in (None, *offsets.store.partitions(group_id, topic)):
                looked_at += 1
                if looked_at >= STEP_ITEMS or batch.is_full:
                    yield batch.records
                    batch, looked_at = TombstoneBatch(), 0
                if partition is not None and offsets.store.has_of_topic(group_id, topic, partition, topic_id):
                    batch.add(offset_tombstone(group_id, topic, partition), group_id, topic)
    yield batch.records


def _is_expired(group: Group, committed: OffsetAndMetadata, now_ms: TimestampMs, retention_ms: int) -> bool:
    base_ms = group.offset_expiration_base_ms(committed.commit_timestamp_ms)
    if base_ms is None:
        return False
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms
