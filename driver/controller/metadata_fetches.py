"""Fetch of `__cluster_metadata`: brokers follow the log, waiting at its end for what comes next.

What is not committed is served too, since it is committed by being fetched; the high watermark in the answer
says what may be acted upon. A fetcher whose log parts from this one is told where, and truncates (KIP-595);
one that needs what only a snapshot has is told which, and fetches that (KIP-630); one that does not know the
high watermark is told at once (KIP-1166). What a fetch says of the fetcher's own log counts only when that
log agrees with this one.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest
from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from kio.schema.fetch.v18.response import SnapshotId as WireSnapshotId
from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest

from driver.controller.cluster import CONTROLLER_ID
from driver.controller.metadata_log import MetadataLog
from driver.controller.quorum.leader import QuorumLeader
from sparklog.errors import ErrorCode
from sparklog.metadata.snapshot_serving import fetch_snapshot_response, snapshot_for
from sparklog.quorum.voter_set import VoterKey
from sparklog.types import CLUSTER_METADATA_TOPIC_ID, LeaderEpoch, Offset, SnapshotId
from sparklog.wire.requests import Deferred, Response

__all__ = ["MetadataFetches"]

_UNKNOWN: Final = -1


class MetadataFetches:
    """The fetches that wait for something new; belongs to the controller's loop."""

    def __init__(
        self,
        cluster_id: str,
        log: MetadataLog,
        quorum: QuorumLeader,
        on_fetched: Callable[[VoterKey, Offset], None],
        on_deposed: Callable[[VoterKey, LeaderEpoch], None],
    ) -> None:
        """Serve `log`.

        `on_fetched` is told that a replica has everything below an offset, `on_deposed` that one follows a
        newer leader.
        """
        self._cluster_id = cluster_id
        self._log = log
        self._quorum = quorum
        self._on_fetched = on_fetched
        self._on_deposed = on_deposed
        self._waiting: dict[Deferred, tuple[FetchRequest, int]] = {}

    def fetch(self, request: FetchRequest, now_ms: int) -> Response | Deferred:
        """Answer a Fetch of any version from 13 on, or hold it until there is something new."""
        if request.cluster_id not in (None, self._cluster_id):
            return _response(ErrorCode.inconsistent_cluster_id, ())
        self._note(request)
        wait_ms = request.max_wait // timedelta(milliseconds=1)
        if wait_ms > 0 and request.min_bytes > 0 and self._is_at_end(request):
            deferred = Deferred()
            self._waiting[deferred] = (request, now_ms + wait_ms)
            deferred.on_abandoned = lambda: self._forget(deferred)
            return deferred
        return self._answer(request)

    def fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> Response:
        """Answer a FetchSnapshot of the newest version."""
        for topic in request.topics:
            for partition in topic.partitions:
                if (
                    partition.current_leader_epoch == self._log.leader_epoch
                    and partition.replica_directory_id is not None
                ):
                    self._quorum.heard(VoterKey(request.replica_id, partition.replica_directory_id), now_ms)
        return fetch_snapshot_response(
            request,
            self._log.snapshots.region,
            cluster_id=self._cluster_id,
            leader_id=CONTROLLER_ID,
            leader_epoch=self._log.leader_epoch,
        )

    def progress(self) -> None:
        """Answer those that wait for what has been appended or committed since."""
        for deferred, (request, _) in list(self._waiting.items()):
            if not self._is_at_end(request):
                del self._waiting[deferred]
                deferred.complete(self._answer(request))

    def expire(self, now_ms: int) -> None:
        """Answer those whose time is up, with nothing."""
        for deferred, (request, deadline_ms) in list(self._waiting.items()):
            if deadline_ms <= now_ms:
                del self._waiting[deferred]
                deferred.complete(self._answer(request))

    def _note(self, request: FetchRequest) -> None:
        """Take in what a replica says of its own log."""
        for topic in request.topics:
            for partition in topic.partitions:
                if topic.topic_id != CLUSTER_METADATA_TOPIC_ID or partition.replica_directory_id is None:
                    continue
                key = VoterKey(request.replica_state.replica_id, partition.replica_directory_id)
                if partition.current_leader_epoch > self._log.leader_epoch:
                    self._on_deposed(key, partition.current_leader_epoch)
                elif (
                    partition.current_leader_epoch == self._log.leader_epoch
                    and self._problem(topic.topic_id, partition) is None
                ):
                    self._on_fetched(key, partition.fetch_offset)

    def _forget(self, deferred: Deferred) -> None:
        self._waiting.pop(deferred, None)

    def _is_at_end(self, request: FetchRequest) -> bool:
        """Whether the request is a good one, and there is nothing that it does not know."""
        partitions = [
            (topic.topic_id, partition) for topic in request.topics for partition in topic.partitions
        ]
        return bool(partitions) and all(
            self._problem(topic_id, partition) is None
            and partition.fetch_offset >= self._log.log_end_offset
            and partition.high_watermark >= self._quorum.high_watermark
            for topic_id, partition in partitions
        )

    def _answer(self, request: FetchRequest) -> FetchResponse:
        return _response(
            ErrorCode.none,
            tuple(
                FetchableTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._partition(topic.topic_id, partition, request.max_bytes)
                        for partition in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _partition(self, topic_id: UUID | None, partition: FetchPartition, max_bytes: int) -> PartitionData:
        problem = self._problem(topic_id, partition)
        if problem is not None:
            return problem
        region = self._log.read(partition.fetch_offset, min(partition.partition_max_bytes, max_bytes))
        return self._data(partition.partition, records=b"" if region is None else region)

    def _problem(self, topic_id: UUID | None, partition: FetchPartition) -> PartitionData | None:
        number = partition.partition
        if topic_id != CLUSTER_METADATA_TOPIC_ID:
            return self._data(number, error_code=ErrorCode.unknown_topic_id)
        if number != 0:
            return self._data(number, error_code=ErrorCode.unknown_topic_or_partition)
        if partition.current_leader_epoch > self._log.leader_epoch:
            return self._data(number, error_code=ErrorCode.unknown_leader_epoch)
        if _UNKNOWN < partition.current_leader_epoch < self._log.leader_epoch:
            return self._data(number, error_code=ErrorCode.fenced_leader_epoch)
        snapshot = snapshot_for(
            partition.fetch_offset,
            None if partition.last_fetched_epoch == _UNKNOWN else partition.last_fetched_epoch,
            log_start_offset=self._log.log_start_offset,
            oldest=self._log.snapshots.oldest,
            newest=self._log.snapshots.newest,
        )
        if snapshot is not None:
            return self._data(number, snapshot=snapshot)
        if partition.last_fetched_epoch != _UNKNOWN and partition.fetch_offset > 0:
            end = self._log.end_offset_for(partition.last_fetched_epoch)
            if end is None:
                return self._data(number, error_code=ErrorCode.offset_out_of_range)
            if end.leader_epoch < partition.last_fetched_epoch or end.end_offset < partition.fetch_offset:
                diverging = EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)
                return self._data(number, diverging_epoch=diverging)
        if not self._log.log_start_offset <= partition.fetch_offset <= self._log.log_end_offset:
            return self._data(number, error_code=ErrorCode.offset_out_of_range)
        return None

    def _data(
        self,
        number: int,
        *,
        error_code: ErrorCode = ErrorCode.none,
        diverging_epoch: EpochEndOffset | None = None,
        snapshot: SnapshotId | None = None,
        records: Any = b"",
    ) -> PartitionData:
        return PartitionData(
            partition_index=number,
            error_code=error_code,
            high_watermark=self._quorum.high_watermark,
            last_stable_offset=self._quorum.high_watermark,
            log_start_offset=self._log.log_start_offset,
            diverging_epoch=EpochEndOffset() if diverging_epoch is None else diverging_epoch,
            current_leader=LeaderIdAndEpoch(leader_id=CONTROLLER_ID, leader_epoch=self._log.leader_epoch),
            snapshot_id=(
                WireSnapshotId()
                if snapshot is None
                else WireSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.leader_epoch)
            ),
            aborted_transactions=(),
            records=records,
        )


def _response(error_code: ErrorCode, topics: tuple[FetchableTopicResponse, ...]) -> FetchResponse:
    return FetchResponse(throttle_time=timedelta(), error_code=error_code, responses=topics)
