"""ListOffsets: where a partition begins and ends, and where a time lies in it.

Consumers are answered below what they may read; the newest offset only once the high watermark has
reached the start of the leader's epoch, since it would seem to go back otherwise (OFFSET_NOT_AVAILABLE,
KIP-207). Looking a time up reads the log and runs beside the loop. Negative times are questions of their own;
each came with a version, and is UNSUPPORTED_VERSION before it (Kafka's ReplicaManager). Versions 1 to 11.
"""

import asyncio
import datetime
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple

from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from executor.replication.partition_leader import PartitionLeader
from executor.replication.partition_table import PartitionTable
from executor.replication.replica import Replica
from sparklog.errors import ErrorCode, KafkaError
from sparklog.storage.log import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from sparklog.types import LeaderEpoch, Offset, TimestampMs
from sparklog.wire.server import Request
from sparklog.wire.versions import upgrade

_UNKNOWN: Final = -1
_READ_COMMITTED: Final = 1
_DEBUG_CONSUMER: Final = -2
_FIRST_OFFSET_NOT_AVAILABLE_VERSION: Final = 5
_EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
_FIRST_VERSIONS: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    _EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""Since when a negative time may be asked for."""
_NO_THROTTLE: Final = datetime.timedelta(0)


class _Found(NamedTuple):
    offset: Offset = _UNKNOWN
    timestamp_ms: TimestampMs = _UNKNOWN
    leader_epoch: LeaderEpoch = _UNKNOWN


class ListOffsetsHandler:
    """Answers ListOffsets requests."""

    def __init__(self, table: PartitionTable, executor: Executor) -> None:
        self._table = table
        self._executor = executor

    async def handle(self, request: Request) -> ListOffsetsResponse:
        """Answer each partition on its own."""
        body = upgrade(request.body)
        duplicates = _named_twice(body)
        topics = []
        for topic in body.topics:
            rows = []
            for partition in topic.partitions:
                error_code, found = ErrorCode.none, _Found()
                try:
                    if (topic.name, partition.partition_index) in duplicates:
                        raise KafkaError(ErrorCode.invalid_request, "the partition is named more than once")
                    _check_supported(partition.timestamp, request.api_version)
                    found = await self._find(topic.name, partition, body)
                except KafkaError as error:
                    error_code = error.error_code
                    if (
                        error_code == ErrorCode.offset_not_available
                        and request.api_version < _FIRST_OFFSET_NOT_AVAILABLE_VERSION
                    ):
                        error_code = ErrorCode.leader_not_available
                except OSError:
                    error_code = ErrorCode.kafka_storage_error
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=error_code,
                        timestamp=found.timestamp_ms,
                        offset=found.offset,
                        leader_epoch=found.leader_epoch,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(rows)))
        return ListOffsetsResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics))

    async def _find(self, topic: str, partition: Any, body: Any) -> _Found:
        replica = self._table.find(topic, partition.partition_index)
        requested_epoch = partition.current_leader_epoch
        is_client = body.replica_id < 0 and body.replica_id != _DEBUG_CONSUMER
        leader = replica.leading_in(requested_epoch if requested_epoch >= 0 else None)
        log = replica.log
        if not is_client:
            end = log.log_end_offset
        elif body.isolation_level == _READ_COMMITTED:
            end = replica.last_stable_offset
        else:
            end = replica.high_watermark
        match partition.timestamp:
            case int(timestamp) if timestamp == LATEST_TIMESTAMP:
                _check_available(replica, leader, is_client)
                return _Found(end, _UNKNOWN, leader.leader_epoch)
            case int(timestamp) if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
                start = log.log_start_offset
                epoch = log.epochs.epoch_at(start)
                return _Found(start, _UNKNOWN, leader.leader_epoch if epoch is None else epoch)
            case int(timestamp) if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
                return await self._find_time(replica, leader, timestamp, end, is_client)
        # Tiered storage's: there is no such tier, so nothing is in it or waits to be.
        return _Found()

    async def _find_time(
        self, replica: Replica, leader: PartitionLeader, timestamp: int, end: Offset, is_client: bool
    ) -> _Found:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._executor, replica.log.offset_for_timestamp, timestamp, replica.log.log_end_offset
            )
        except KafkaError as error:
            replica.fail_if_storage(error)
            raise
        replica.leading()  # it may have lost the leadership meanwhile
        if found is None:
            return _Found()
        if found.offset >= end:
            _check_available(replica, leader, is_client)
            return _Found()
        return _Found(
            found.offset,
            _UNKNOWN if found.timestamp_ms is None else found.timestamp_ms,
            _UNKNOWN if found.leader_epoch is None else found.leader_epoch,
        )


def _check_supported(timestamp: int, api_version: int) -> None:
    if timestamp < 0 and api_version < _FIRST_VERSIONS.get(timestamp, api_version + 1):
        raise KafkaError(
            ErrorCode.unsupported_version, f"ListOffsets {api_version} knows no special time {timestamp}"
        )


def _check_available(replica: Replica, leader: PartitionLeader, is_client: bool) -> None:
    if is_client and leader.high_watermark_is_behind_epoch:
        raise KafkaError(
            ErrorCode.offset_not_available,
            f"{replica}: the high watermark {leader.high_watermark} has not reached the start "
            f"{leader.leader_epoch_start_offset} of leader epoch {leader.leader_epoch}",
        )


def _named_twice(body: Any) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in body.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            (twice if key in seen else seen).add(key)
    return twice
