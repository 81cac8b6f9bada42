"""Responses to Fetch of a replica of the metadata log: the leader, or a broker whose copy is taken over.

A fetcher whose log diverges from this one gets the offset of the divergence, and truncates (KIP-595,
`fetch_divergence`); one that needs records that only a snapshot has gets the snapshot's id, and fetches it
(KIP-630, `needed_snapshot`). A leader epoch in the request must be this replica's.
"""

from dataclasses import dataclass
from typing import Any
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

from sparklog.node.metadata_log.machine.needed_snapshot import needed_snapshot
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.storage import Log
from sparklog.node.storage.machine.epoch_checks import check_leader_epoch, fetch_divergence
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import (
    CLUSTER_METADATA_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    SnapshotId,
    or_minus_one,
    unless_minus_one,
)


@dataclass(frozen=True, slots=True)
class ServedLog:
    """A replica of the metadata log, and its view of the leader, at one moment."""

    log: Log
    snapshots: SnapshotStore
    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch
    high_watermark: Offset | None

    def answer(self, request: FetchRequest) -> FetchResponse:
        """Return the response to a request for this replica's cluster: its records up to the log's end."""
        return unthrottled(
            FetchResponse,
            error_code=ErrorCode.none,
            responses=tuple(
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

    def agrees(self, topic_id: UUID | None, partition: FetchPartition) -> bool:
        """Whether topic and epoch match and the fetcher's log is a prefix of this one."""
        try:
            return self._begin_instead(topic_id, partition) is None
        except KafkaError:
            return False

    def _partition(self, topic_id: UUID | None, partition: FetchPartition, max_bytes: int) -> PartitionData:
        error_code, diverging, snapshot = ErrorCode.none, EpochEndOffset(), WireSnapshotId()
        records: Any = b""
        try:
            match self._begin_instead(topic_id, partition):
                case None:
                    records = self._records(
                        partition.fetch_offset, min(partition.partition_max_bytes, max_bytes)
                    )
                case SnapshotId(end_offset, epoch):
                    snapshot = WireSnapshotId(end_offset=end_offset, epoch=epoch)
                case epoch, end_offset:
                    diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        except KafkaError as error:
            error_code = error.error_code
        high_watermark = or_minus_one(self.high_watermark)
        return PartitionData(
            partition_index=partition.partition,
            error_code=error_code,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=self.log.log_start_offset,
            diverging_epoch=diverging,
            current_leader=LeaderIdAndEpoch(
                leader_id=or_minus_one(self.leader_id),
                leader_epoch=self.leader_epoch,
            ),
            snapshot_id=snapshot,
            aborted_transactions=(),
            records=records,
        )

    def _begin_instead(
        self, topic_id: UUID | None, partition: FetchPartition
    ) -> SnapshotId | tuple[LeaderEpoch, Offset] | None:
        """Return where the fetcher has to continue instead: a snapshot, or the end of an epoch.

        Raises:
            KafkaError: another log or epoch is requested, or the offset is not in this log.
        """
        if topic_id != CLUSTER_METADATA_TOPIC_ID:
            raise KafkaError(ErrorCode.unknown_topic_id, f"topic id {topic_id} is not served here")
        if partition.partition != 0:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"the metadata log has no partition {partition.partition}",
            )
        check_leader_epoch(unless_minus_one(partition.current_leader_epoch), self.leader_epoch)
        log = self.log
        offset, last_fetched_epoch = partition.fetch_offset, unless_minus_one(partition.last_fetched_epoch)
        snapshot_id = needed_snapshot(
            offset,
            last_fetched_epoch,
            log_start_offset=log.log_start_offset,
            oldest=self.snapshots.oldest,
            newest=self.snapshots.newest,
        )
        if snapshot_id is not None:
            return snapshot_id
        return fetch_divergence(self, last_fetched_epoch, offset, log.log_start_offset, log.log_end_offset)

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Return an epoch's end offset, as `LeaderEpochHistory` does; None also above the log's epochs."""
        return self.log.epochs.end_offset_for(leader_epoch, self.log.log_end_offset)

    def _records(self, offset: Offset, max_bytes: int) -> Any:
        end_offset = self.log.log_end_offset
        region = self.log.read(offset, max_bytes=max_bytes, up_to_offset=end_offset).region
        return b"" if region is None else region


def fetch_refusal(error_code: ErrorCode) -> FetchResponse:
    return unthrottled(FetchResponse, error_code=error_code, responses=())
