"""Committed offsets of a partition's groups, and pending offsets of open transactions.

Only replay changes them. When a transaction ends, the position at which its offset was appended is compared
with that of a commit outside: the later one stays, as in the compacted log.

A load may bring millions of records, few of which are ever read: their values stay the log's bytes
(`put_raw`) until then.

Source: Kafka's OffsetMetadataManager (Offsets, OpenTransactions).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct, unpack
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from sparklog.executor.coordinators.records.consumer_offsets import OffsetCommitValue
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.protocol.records.key_values import KeyRun
from sparklog.protocol.types import LeaderEpoch, Offset, ProducerId, TimestampMs, unless_minus_one


class OffsetAndMetadata(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str
    commit_timestamp_ms: TimestampMs
    expire_timestamp_ms: TimestampMs | None
    """Only from clients before OffsetCommit 5, which set the retention themselves."""
    topic_id: UUID | None
    """None if neither client nor coordinator knew it."""

    @classmethod
    def from_value(cls, value: OffsetCommitValue) -> Self:
        return cls(
            value.offset,
            unless_minus_one(value.leader_epoch),
            value.metadata,
            value.commit_timestamp,
            unless_minus_one(value.expire_timestamp),
            value.topic_id,
        )

    def is_of_topic(self, topic_id: UUID | None) -> bool:
        """Whether it belongs to this topic, not to an earlier one of the name; an unknown id matches any."""
        return self.topic_id is None or topic_id is None or self.topic_id == topic_id


_Key = tuple[str, str, int]
"""Group, topic, partition."""

_NO_TOPICS: Final[Mapping[str, Collection[int]]] = MappingProxyType({})

_OFFSET_KEY: Final = b"\0\1"
"""First bytes of an OffsetCommit record's key."""
_KNOWN_VERSIONS: Final = frozenset(
    version.to_bytes(2) for version in range(OffsetCommitValue.__highest_version__ + 1)
)
"""First bytes of its value."""
_RELEASED_AT_ONCE: Final = 2048
_PARTITION: Final = Struct(">i")
_LENGTH: Final = Struct(">h")


class OffsetStore:
    def __init__(self) -> None:
        self.offset_count = 0
        """Number of committed offsets."""
        self._groups: dict[str, dict[str, dict[int, OffsetAndMetadata | bytes]]] = {}
        self._by_raw_key: dict[bytes, dict[int, OffsetAndMetadata | bytes]] = {}
        """During a load: the partitions of a group's topic by the part of the key before the partition."""
        self._emptied: set[bytes] = set()
        """Keys of `_by_raw_key` whose partitions were empty at some time."""
        self._pending: dict[ProducerId, dict[_Key, tuple[int, OffsetAndMetadata]]] = {}
        """The offset and the number of records replayed before it."""
        self._pending_producers: dict[str, dict[tuple[str, int], set[ProducerId]]] = {}
        self._committed_during: dict[_Key, int] = {}
        """Number of records replayed before a plain commit for a partition with pending offsets."""
        self._replayed = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.group_ids())

    def group_ids(self) -> list[str]:
        """Return the groups that have committed or pending offsets, as fast as a list is copied."""
        group_ids = list(self._groups)
        group_ids.extend(group for group in self._pending_producers if group not in self._groups)
        return group_ids

    @property
    def group_count(self) -> int:
        return len(self._groups) + sum(group not in self._groups for group in self._pending_producers)

    def has(self, group_id: str) -> bool:
        return group_id in self._groups or group_id in self._pending_producers

    def topics(self, group_id: str) -> Mapping[str, Collection[int]]:
        return self._groups.get(group_id, _NO_TOPICS)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        partitions = self._groups.get(group_id, {}).get(topic, {})
        committed = partitions.get(partition)
        if type(committed) is not bytes:
            return committed  # type: ignore[return-value]  # type() does not narrow to the other
        key = _raw_prefix(group_id, topic) + _PARTITION.pack(partition)
        _, value = CONSUMER_OFFSETS_RECORDS.decode(key, committed)
        assert value is not None, "a tombstone is not kept"
        decoded = partitions[partition] = OffsetAndMetadata.from_value(value)
        return decoded

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        pending = self._pending_producers.get(group_id)
        return pending is not None and (topic, partition) in pending

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        yield from self._pending_producers.get(group_id, ())

    def partitions(self, group_id: str, topic: str) -> Collection[int]:
        committed = self.topics(group_id).get(topic, ())
        pending = self._pending_producers.get(group_id)
        if pending is None:
            return committed
        return {*committed, *(partition for name, partition in pending if name == topic)}

    def has_of_topic(self, group_id: str, topic: str, partition: int, topic_id: UUID) -> bool:
        """Whether the partition's committed offset or a pending one belongs to this topic."""
        committed = self.get(group_id, topic, partition)
        if committed is not None and committed.is_of_topic(topic_id):
            return True
        return any(
            self._pending[producer_id][group_id, topic, partition][1].is_of_topic(topic_id)
            for producer_id in self._pending_producers.get(group_id, {}).get((topic, partition), ())
        )

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._pending_producers

    # ---- loading ---------------------------------------------------------------------------------------

    def put_raw(self, run: KeyRun) -> bool:
        """Apply undecoded records outside of transactions; return False if they are not offsets.

        The caller decodes refused records. Only until `loaded`.
        """
        prefix, ends, values = run
        if prefix is None or prefix[:2] != _OFFSET_KEY or self._pending:
            return False
        for value in values:
            if value is not None and value[:2] not in _KNOWN_VERSIONS:
                return False
        partitions = self._by_raw_key.get(prefix)
        if partitions is None:
            group_id, end = _read_string(prefix, len(_OFFSET_KEY))
            topic, end = _read_string(prefix, end)
            if end != len(prefix):
                return False  # decoding refuses it
            partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
            self._by_raw_key[prefix] = partitions
        count = len(partitions)
        numbers = unpack(f">{len(ends)}i", b"".join(ends))
        if None in values:
            self._put_with_tombstones(prefix, partitions, zip(numbers, values, strict=True))
        else:
            partitions.update(zip(numbers, values, strict=True))  # type: ignore[arg-type]  # none is None
        self.offset_count += len(partitions) - count
        return True

    def _put_with_tombstones(
        self,
        prefix: bytes,
        partitions: dict[int, OffsetAndMetadata | bytes],
        records: Iterable[tuple[int, bytes | None]],
    ) -> None:
        for partition, value in records:
            if value is not None:
                partitions[partition] = value
            else:
                partitions.pop(partition, None)
        if not partitions:
            self._emptied.add(prefix)

    def loaded(self) -> None:
        """End the load: drop groups and topics that tombstones have left empty."""
        for prefix in self._emptied:
            group_id, end = _read_string(prefix, len(_OFFSET_KEY))
            topic, _ = _read_string(prefix, end)
            self._forget_if_empty(group_id, topic)
        self._emptied = set()
        self._by_raw_key = {}

    def release(self) -> Iterator[None]:
        """Release all offsets in slices; the store is not used afterwards."""
        self._by_raw_key = {}
        released = 0
        while self._groups:
            _, topics = self._groups.popitem()
            for partitions in topics.values():
                while partitions:
                    partitions.popitem()
                    released += 1
                    if released % _RELEASED_AT_ONCE == 0:
                        yield
        pending: dict[Any, dict[Any, Any]]
        for pending in (self._pending, self._pending_producers):
            while pending:
                _, entries = pending.popitem()
                while entries:
                    entries.popitem()
                    released += 1
                    if released % _RELEASED_AT_ONCE == 0:
                        yield

    # ---- replaying -------------------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> None:
        self._replayed += 1
        self._put(group_id, topic, partition, committed)
        if self._pending_producers and self.is_pending(group_id, topic, partition):
            self._committed_during[group_id, topic, partition] = self._replayed

    def put_pending(
        self, producer_id: ProducerId, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata
    ) -> None:
        self._replayed += 1
        pending = self._pending.setdefault(producer_id, {})
        pending[group_id, topic, partition] = self._replayed, committed
        partitions = self._pending_producers.setdefault(group_id, {})
        partitions.setdefault((topic, partition), set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Apply a tombstone to the committed offset and to those of open transactions."""
        self._replayed += 1
        topics = self._groups.get(group_id)
        if topics is not None and topic in topics:
            if topics[topic].pop(partition, None) is not None:
                self.offset_count -= 1
            self._forget_if_empty(group_id, topic)
        for producer_id in tuple(self._pending_producers.get(group_id, {}).get((topic, partition), ())):
            pending = self._pending[producer_id]
            del pending[group_id, topic, partition]
            if not pending:
                del self._pending[producer_id]
            self._no_more_pending(producer_id, (group_id, topic, partition))

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        for key, (position, offset) in self._pending.pop(producer_id, {}).items():
            if committed and self._committed_during.get(key, 0) < position:
                self._put(*key, offset)
                # The position of the append counts, not that of the marker.
                self._committed_during[key] = position
            self._no_more_pending(producer_id, key)

    def _put(self, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> None:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        if partition not in partitions:
            self.offset_count += 1
        partitions[partition] = committed

    def _forget_if_empty(self, group_id: str, topic: str) -> None:
        topics = self._groups.get(group_id, {})
        if not topics.get(topic, True):
            del topics[topic]
            self._by_raw_key.pop(_raw_prefix(group_id, topic), None)
            if not topics:
                del self._groups[group_id]

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


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    end = position + _LENGTH.size + length
    return data[position + _LENGTH.size : end].decode(), end


def _raw_prefix(group_id: str, topic: str) -> bytes:
    strings = (group_id.encode(), topic.encode())
    return _OFFSET_KEY + b"".join(_LENGTH.pack(len(raw)) + raw for raw in strings)
