"""Commits, fetches and deletions of offsets, by members of groups of either type and by other clients.

A commit without a member (by a client that assigns its own partitions, or an admin) makes a simple group: an
empty classic group without a protocol type. The group validates a commit of a member by its generation or
member epoch.

Source: Kafka's OffsetMetadataManager; KIP-211, KIP-447 (require_stable), KIP-496 (deleting).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetAndMetadata, OffsetStore
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord, Now, ProducerStamp
from sparklog.executor.coordinators.records.consumer_offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.node.metadata.partition_for import utf_16_length
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import LeaderEpoch, Offset

FIRST_VERSION_OF_MISSING_GROUPS: Final = 9
"""From this version of OffsetCommit on clients know GROUP_ID_NOT_FOUND."""


class CommittedPartition(NamedTuple):
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    """As on the wire: -1 if the client does not know it."""
    metadata: str | None


class OffsetCommit(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_or_member_epoch: int
    api_version: int
    topics: tuple[tuple[str, UUID | None, tuple[CommittedPartition, ...]], ...]
    retention_ms: int | None = None
    """Retention that a client before OffsetCommit 5 requests."""


class OffsetFetch(NamedTuple):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: tuple[tuple[str, UUID | None, tuple[int, ...]], ...]
    require_stable: bool


class FetchedOffset(NamedTuple):
    """Result for a partition; the absence of an offset is no error."""

    partition: int
    committed: OffsetAndMetadata | None
    error_code: ErrorCode


TopicErrors: TypeAlias = list[tuple[str, list[tuple[int, ErrorCode]]]]
"""Topics, in the order of the request, with the error code of each partition."""


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


class _Metrics(Protocol):
    offset_commits: int
    offset_deletions: int


class Offsets:
    def __init__(
        self, groups: Mapping[str, Group], store: OffsetStore, metrics: _Metrics, *, metadata_max_bytes: int
    ) -> None:
        """`groups` are the partition's; the limit is offset.metadata.max.bytes."""
        self._metrics = metrics
        self.store = store
        self._groups = groups
        self._metadata_max_bytes = metadata_max_bytes

    # ---- replaying -------------------------------------------------------------------------------------

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer: ProducerStamp | None,
    ) -> None:
        if value is None:
            self.store.remove(key.group, key.topic, key.partition)
            return
        committed = OffsetAndMetadata.from_value(value)
        if producer is None:
            self.store.put(key.group, key.topic, key.partition, committed)
        else:
            self.store.put_pending(producer.producer_id, key.group, key.topic, key.partition, committed)

    # ---- committing ------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommit, now: Now) -> tuple[list[CoordinatorRecord], TopicErrors]:
        """Decide about a commit; return its records, and the error code of each partition."""
        return self._commit(request, self._validate(request), now)

    def commit_in_transaction(
        self, request: OffsetCommit, now: Now
    ) -> tuple[list[CoordinatorRecord], TopicErrors]:
        group = self._groups.get(request.group_id)
        if group is None:
            # A commit without a member makes a simple group; a generation without a group is an old one.
            is_stranger = request.generation_or_member_epoch < 0
            validation = ErrorCode.none if is_stranger else ErrorCode.illegal_generation
        else:
            validation = _validated(group, request, is_transactional=True)
            if validation is ErrorCode.stale_member_epoch:  # producers do not know this error
                validation = ErrorCode.illegal_generation
        return self._commit(request, validation, now)

    def _validate(self, request: OffsetCommit) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is not None:
            return _validated(group, request, is_transactional=False)
        if request.generation_or_member_epoch < 0:
            return ErrorCode.none
        if request.api_version >= FIRST_VERSION_OF_MISSING_GROUPS:
            return ErrorCode.group_id_not_found
        return ErrorCode.illegal_generation

    def _commit(
        self, request: OffsetCommit, validation: ErrorCode, now: Now
    ) -> tuple[list[CoordinatorRecord], TopicErrors]:
        records: list[CoordinatorRecord] = []
        if validation is not ErrorCode.none:
            return records, [
                (topic, [(asked.partition, validation) for asked in partitions])
                for topic, _, partitions in request.topics
            ]
        expire_timestamp = -1 if request.retention_ms is None else now.wall_ms + request.retention_ms
        errors: TopicErrors = []
        for topic, topic_id, partitions in request.topics:
            answered = []
            for asked in partitions:
                metadata = asked.metadata or ""
                error_code = ErrorCode.none
                if utf_16_length(metadata) > self._metadata_max_bytes:  # as Kafka counts
                    error_code = ErrorCode.offset_metadata_too_large
                else:
                    records.append(
                        CoordinatorRecord(
                            OffsetCommitKey(group=request.group_id, topic=topic, partition=asked.partition),
                            OffsetCommitValue(
                                offset=asked.offset,
                                leader_epoch=asked.leader_epoch,
                                metadata=metadata,
                                commit_timestamp=now.wall_ms,
                                expire_timestamp=expire_timestamp,
                                topic_id=topic_id,
                            ),
                        )
                    )
                answered.append((asked.partition, error_code))
            errors.append((topic, answered))
        self._metrics.offset_commits += len(records)
        return records, errors

    # ---- reading ---------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetch) -> tuple[ErrorCode, list[tuple[str, list[FetchedOffset]]]]:
        """Return the error for the whole group, or the offsets; a missing group has none."""
        group = self._groups.get(request.group_id)
        if group is not None:
            error_code = group.validate_offset_fetch(request.member_id, request.member_epoch)
            if error_code is not ErrorCode.none:
                return error_code, []
        fetched = []
        for topic, topic_id, partitions in request.topics:
            rows = []
            for partition in partitions:
                row = None if group is None else self.store.get(request.group_id, topic, partition)
                if request.require_stable and self.store.is_pending(request.group_id, topic, partition):
                    rows.append(FetchedOffset(partition, None, ErrorCode.unstable_offset_commit))
                elif row is None or not row.is_of_topic(topic_id):
                    rows.append(FetchedOffset(partition, None, ErrorCode.none))
                else:
                    rows.append(FetchedOffset(partition, row, ErrorCode.none))
            fetched.append((topic, rows))
        return ErrorCode.none, fetched

    def committed_partitions(
        self, request: OffsetFetch
    ) -> tuple[tuple[str, UUID | None, tuple[int, ...]], ...]:
        if request.group_id not in self._groups:
            return ()
        topics = self.store.topics(request.group_id)
        return tuple((topic, None, tuple(partitions)) for topic, partitions in topics.items())

    # ---- deleting --------------------------------------------------------------------------------------

    def delete(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
    ) -> tuple[ErrorCode, list[CoordinatorRecord], TopicErrors]:
        """Decide about OffsetDelete: return the group's error, records, and each partition's error."""
        group = self._groups.get(group_id)
        error_code = ErrorCode.group_id_not_found if group is None else group.validate_offset_delete()
        if group is None or error_code is not ErrorCode.none:
            return error_code, [], []
        records: list[CoordinatorRecord] = []
        errors: TopicErrors = []
        for topic, partitions in topics:
            if group.is_subscribed_to(topic):
                errors.append((topic, [(each, ErrorCode.group_subscribed_to_topic) for each in partitions]))
                continue
            errors.append((topic, [(each, ErrorCode.none) for each in partitions]))
            records.extend(
                offset_tombstone(group_id, topic, each)
                for each in partitions
                if self.store.get(group_id, topic, each) is not None
                or self.store.is_pending(group_id, topic, each)
            )
        self._metrics.offset_deletions += len(records)
        return ErrorCode.none, records, errors

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """Iterate over the tombstones of all offsets of a group, including those of open transactions."""
        topics = self.store.topics(group_id)
        for topic, partitions in topics.items():
            for partition in partitions:
                yield offset_tombstone(group_id, topic, partition)
        for topic, partition in self.store.pending_partitions(group_id):
            if partition not in topics.get(topic, ()):
                yield offset_tombstone(group_id, topic, partition)


def _validated(group: Group, request: OffsetCommit, *, is_transactional: bool) -> ErrorCode:
    """Return the error of a commit; one partition of another member refuses it as a whole, as in Kafka."""
    validation = group.validate_offset_commit(
        request.member_id,
        request.group_instance_id,
        request.generation_or_member_epoch,
        is_transactional=is_transactional,
        api_version=request.api_version,
    )
    if isinstance(validation, ErrorCode):
        return validation
    refusals = (
        validation(topic, topic_id, asked.partition)
        for topic, topic_id, partitions in request.topics
        for asked in partitions
    )
    return next((refusal for refusal in refusals if refusal is not ErrorCode.none), ErrorCode.none)
