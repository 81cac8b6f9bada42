"""Fetch of a broker's copy of the metadata log, by a candidate that takes it over.

A reader whose log parts from this one is told where (KIP-595), and one that needs what only a snapshot has is
told which (KIP-630). One that names an epoch must mean this broker's; a candidate names none.
"""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

from executor.quorum.metadata_replica import MetadataReplica
from executor.replication.epoch_checks import check_leader_epoch, divergence
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.snapshot_serving import snapshot_for
from sparklog.types import CLUSTER_METADATA_TOPIC_ID

__all__ = ["fetch_response"]

_UNKNOWN: Final = -1


def fetch_response(replica: MetadataReplica, request: Any) -> FetchResponse:
    """Return the answer to a Fetch request of the newest version."""
    if request.cluster_id not in (None, replica.cluster_id):
        return _response(ErrorCode.inconsistent_cluster_id, ())
    return _response(
        ErrorCode.none,
        tuple(
            FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=tuple(
                    _partition(replica, topic.topic_id, partition, request.max_bytes)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _partition(
    replica: MetadataReplica, topic_id: UUID | None, partition: Any, max_bytes: int
) -> PartitionData:
    log = replica.log
    error_code, diverging, snapshot = ErrorCode.none, EpochEndOffset(), SnapshotId()
    records: Any = b""
    try:
        _check_addressee(topic_id, partition.partition)
        check_leader_epoch(_known(partition.current_leader_epoch), replica.voter.leader_epoch)
        last_fetched_epoch = _known(partition.last_fetched_epoch)
        needed = snapshot_for(
            partition.fetch_offset,
            last_fetched_epoch,
            log_start_offset=log.log_start_offset,
            oldest=replica.snapshots.oldest,
            newest=replica.snapshots.newest,
        )
        if needed is not None:
            snapshot = SnapshotId(end_offset=needed.end_offset, epoch=needed.leader_epoch)
        elif (
            parted := divergence(
                _History(replica), last_fetched_epoch, partition.fetch_offset, log.log_start_offset
            )
        ) is not None:
            diverging = EpochEndOffset(epoch=parted[0], end_offset=parted[1])
        else:
            region = log.read(
                partition.fetch_offset,
                max_bytes=min(partition.partition_max_bytes, max_bytes),
                up_to_offset=log.log_end_offset,
            ).region
            records = b"" if region is None else region
    except KafkaError as error:
        error_code = error.error_code
    election, high_watermark = replica.voter.election, replica.voter.high_watermark
    return PartitionData(
        partition_index=partition.partition,
        error_code=error_code,
        high_watermark=_UNKNOWN if high_watermark is None else high_watermark,
        log_start_offset=log.log_start_offset,
        diverging_epoch=diverging,
        current_leader=LeaderIdAndEpoch(
            leader_id=_UNKNOWN if election.leader_id is None else election.leader_id,
            leader_epoch=election.leader_epoch,
        ),
        snapshot_id=snapshot,
        aborted_transactions=(),
        records=records,
    )


class _History:
    """The epochs of a replica's log, up to its end."""

    def __init__(self, replica: MetadataReplica) -> None:
        self._log = replica.log

    def end_offset_for(self, leader_epoch: int) -> tuple[int, int] | None:
        return self._log.epochs.end_offset_for(leader_epoch, self._log.log_end_offset)


def _check_addressee(topic_id: UUID | None, partition: int) -> None:
    if topic_id != CLUSTER_METADATA_TOPIC_ID:
        raise KafkaError(ErrorCode.unknown_topic_id, f"topic id {topic_id} is not served here")
    if partition != 0:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"the metadata log has no partition {partition}"
        )


def _known(leader_epoch: int) -> int | None:
    return None if leader_epoch == _UNKNOWN else leader_epoch


def _response(error_code: ErrorCode, topics: tuple[FetchableTopicResponse, ...]) -> FetchResponse:
    return FetchResponse(throttle_time=timedelta(), error_code=error_code, responses=topics)
