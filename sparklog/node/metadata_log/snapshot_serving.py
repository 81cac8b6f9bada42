"""Responses to FetchSnapshot of a replica of the metadata log.

A fetcher that was referred to a snapshot (`needed_snapshot`) fetches the file in pieces (KIP-630). Pieces are
byte ranges of the file, not batches, and are sent from it without being read.
"""

from collections.abc import Callable
from typing import Any

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest
from kio.schema.fetch_snapshot.v1.response import (
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    TopicSnapshot,
)
from kio.schema.fetch_snapshot.v1.response import SnapshotId as WireSnapshotId

from sparklog.node.serving.throttling import unthrottled
from sparklog.node.storage.file_region import FileRegion
from sparklog.node.storage.machine.epoch_checks import check_leader_epoch
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import (
    CLUSTER_METADATA_TOPIC,
    BrokerId,
    LeaderEpoch,
    SnapshotId,
    or_minus_one,
    unless_minus_one,
)


def fetch_snapshot_response(
    request: FetchSnapshotRequest,
    find: Callable[[SnapshotId], FileRegion | None],
    *,
    cluster_id: str | None,
    leader_id: BrokerId | None,
    leader_epoch: LeaderEpoch,
) -> FetchSnapshotResponse:
    """Return the response of a replica of that cluster with that leader.

    `find` returns the file of a snapshot. Any replica serves a request without a leader epoch.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR: raised by `find`.
    """
    if request.cluster_id not in (None, cluster_id):
        return _response(ErrorCode.inconsistent_cluster_id, ())
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or request.max_bytes < 1:
        return _response(ErrorCode.invalid_request, ())
    (topic,) = request.topics
    (partition,) = topic.partitions
    snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    error_code, size_bytes, piece = ErrorCode.none, 0, None
    try:
        if (topic.name, partition.partition) != (CLUSTER_METADATA_TOPIC, 0):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"{topic.name}-{partition.partition} has no snapshots"
            )
        check_leader_epoch(unless_minus_one(partition.current_leader_epoch), leader_epoch)
        file = find(snapshot_id)
        if file is None:
            raise KafkaError(ErrorCode.snapshot_not_found, f"snapshot {snapshot_id} does not exist")
        size_bytes = len(file)
        if not 0 <= partition.position < size_bytes:
            raise KafkaError(
                ErrorCode.position_out_of_range,
                f"snapshot {snapshot_id} has {size_bytes} bytes, none at {partition.position}",
            )
        length = min(request.max_bytes, size_bytes - partition.position)
        piece = FileRegion(file.file, partition.position, length)
    except KafkaError as error:
        if error.error_code is ErrorCode.kafka_storage_error:
            raise
        error_code = error.error_code
    records: Any = b"" if piece is None else piece
    answer = PartitionSnapshot(
        index=partition.partition,
        error_code=error_code,
        snapshot_id=WireSnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.leader_epoch),
        current_leader=LeaderIdAndEpoch(leader_id=or_minus_one(leader_id), leader_epoch=leader_epoch),
        size=size_bytes,
        position=partition.position,
        unaligned_records=records,
    )
    return _response(ErrorCode.none, (TopicSnapshot(name=topic.name, partitions=(answer,)),))


def _response(error_code: ErrorCode, topics: tuple[TopicSnapshot, ...]) -> FetchSnapshotResponse:
    return unthrottled(FetchSnapshotResponse, error_code=error_code, topics=topics)
