"""Download of a snapshot of the metadata log from another replica, piece by piece.

Pure: the next request, and whether a response is the next piece of the same file. `SnapshotStore.download`
carries it out. After a failure its owner begins a new download, with another fetch: the snapshot may be gone.

Source: KIP-630.
"""

from typing import Any, Final
from uuid import UUID

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
from kio.schema.fetch_snapshot.v1.request import SnapshotId as WireSnapshotId

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import (
    CLUSTER_METADATA_TOPIC,
    BrokerId,
    LeaderEpoch,
    SnapshotId,
    or_minus_one,
    unless_minus_one,
)

FETCH_SNAPSHOT_MAX_BYTES: Final = 8 * 1024 * 1024
"""Limit for one piece."""


class DownloadRefusedError(KafkaError):
    """The other replica refuses the snapshot, or its response does not fit the request.

    `leader_epoch` is that of the refusal; `None` if it has none.
    """

    def __init__(self, error_code: ErrorCode, message: str, leader_epoch: LeaderEpoch | None = None) -> None:
        super().__init__(error_code, message)
        self.leader_epoch = leader_epoch


class SnapshotDownload:
    def __init__(
        self,
        snapshot_id: SnapshotId,
        *,
        cluster_id: str | None,
        leader_epoch: LeaderEpoch | None,
        replica_id: BrokerId,
        directory_id: UUID | None,
    ) -> None:
        """Download for a replica; with `leader_epoch` the other replica must be in it."""
        self.snapshot_id = snapshot_id
        self._cluster_id = cluster_id
        self._leader_epoch = leader_epoch
        self._replica_id = replica_id
        self._directory_id = directory_id
        self._received_bytes = 0
        self._size_bytes: int | None = None

    @property
    def is_complete(self) -> bool:
        return self._received_bytes == self._size_bytes

    def request(self) -> FetchSnapshotRequest:
        partition = PartitionSnapshot(
            partition=0,
            current_leader_epoch=or_minus_one(self._leader_epoch),
            snapshot_id=WireSnapshotId(
                end_offset=self.snapshot_id.end_offset, epoch=self.snapshot_id.leader_epoch
            ),
            position=self._received_bytes,
            replica_directory_id=self._directory_id,
        )
        return FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._replica_id,
            max_bytes=FETCH_SNAPSHOT_MAX_BYTES,
            topics=(TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
        )

    def answered(self, response: Any) -> bytes | memoryview:
        """Return the bytes of a response, which continue the file.

        Raises:
            DownloadRefusedError: there are none; see the class.
        """
        if response.error_code is not ErrorCode.none:
            raise DownloadRefusedError(response.error_code, f"snapshot {self.snapshot_id} is refused")
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        if len(partitions) != 1:
            raise self._strange(f"{len(partitions)} partitions")
        partition = partitions[0]
        if partition.error_code is not ErrorCode.none:
            leader_epoch = partition.current_leader.leader_epoch
            raise DownloadRefusedError(
                partition.error_code,
                f"snapshot {self.snapshot_id} is refused",
                unless_minus_one(leader_epoch),
            )
        answered_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        if answered_id != self.snapshot_id:
            raise self._strange(f"snapshot {answered_id}")
        if partition.position != self._received_bytes:
            raise self._strange(f"position {partition.position} instead of {self._received_bytes}")
        if self._size_bytes not in (None, partition.size):
            raise self._strange(f"a size of {partition.size} bytes, and {self._size_bytes} before")
        data: bytes | memoryview = partition.unaligned_records
        end = self._received_bytes + len(data)
        if not data or end > partition.size:
            raise self._strange(f"{len(data)} bytes at {self._received_bytes} of {partition.size}")
        self._size_bytes = partition.size
        self._received_bytes = end
        return data

    def _strange(self, what: str) -> DownloadRefusedError:
        return DownloadRefusedError(
            ErrorCode.unknown_server_error, f"asked for snapshot {self.snapshot_id}, the answer has {what}"
        )
