"""ListOffsets: where a partition begins and ends, and where a time lies in it.

Consumers are answered below what they may read; the newest offset only once the high watermark has
reached the start of the leader's epoch, since it would seem to go back otherwise (OFFSET_NOT_AVAILABLE,
KIP-207). Looking a time up reads the log and runs beside the loop; it is an answer of the leadership in which
it began, or none. Negative times are questions of their own; each came with a version, and is
UNSUPPORTED_VERSION before it (Kafka's ReplicaManager). Versions 1 to 11.

A tiered partition begins in the object store, and its times are looked up there first. Such look-ups of one
request go on side by side.
"""

import asyncio
import datetime
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.remote_reads.time_search import first_at_or_after, latest
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import held
from sparklog.node.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs, or_minus_one

if TYPE_CHECKING:
    from sparklog.executor.remote_reads.remote_reader import RemoteReader

_LOOK_UPS_IN_TIERS: Final = 8
"""Partitions whose times are looked up in the object store at a time."""
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
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


class _Found(NamedTuple):
    offset: Offset | None = None
    timestamp_ms: TimestampMs | None = None
    leader_epoch: LeaderEpoch | None = None


class _LookUp(NamedTuple):
    """A look-up of a timestamp that is still to do."""

    replica: Replica
    leader: PartitionLeader
    asked_epoch: LeaderEpoch | None
    timestamp: TimestampMs
    end: Offset
    is_client: bool
    local_start: Offset
    """The local log start offset when the look-up began: the tier is searched below it."""


_Outcome = _Found | KafkaError


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    replicas = services.replicas
    handler = ListOffsetsHandler(
        replicas.table,
        replicas.executor,
        replicas.remote_reader,
        remote_timeout_ms=services.config.remote_list_offsets_request_timeout_ms,
    )
    return {ApiKey.LIST_OFFSETS: handler.handle}


class ListOffsetsHandler:
    def __init__(
        self,
        table: PartitionTable,
        executor: Executor,
        remote: "RemoteReader | None" = None,
        *,
        remote_timeout_ms: int = 30_000,
    ) -> None:
        """Answer from `table`, and from `remote` for what only the object store has.

        `remote_timeout_ms` bounds look-ups of requests that say nothing themselves.
        """
        self._table = table
        self._executor = executor
        self._remote = remote
        self._remote_timeout_ms = remote_timeout_ms
        self._remote_turns = asyncio.Semaphore(_LOOK_UPS_IN_TIERS)

    async def handle(self, request: Request) -> Response:
        """Answer each partition on its own; timestamps are looked up last."""
        body = await upgrade_in_steps(request.body)
        duplicates = await _named_twice(body)
        topics: list[tuple[str, list[Any]]] = []
        by_time: list[tuple[list[Any], int, _LookUp]] = []
        for topic in body.topics:
            rows: list[Any] = []
            topics.append((topic.name, rows))
            for partition in topic.partitions:
                await turn()
                found: _Outcome | _LookUp
                try:
                    if (topic.name, partition.partition_index) in duplicates:
                        raise KafkaError(ErrorCode.invalid_request, "the partition is named more than once")
                    _check_supported(partition.timestamp, request.api_version)
                    found = self._find(topic.name, partition, body)
                except (KafkaError, OSError) as error:
                    found = kafka_error(error)
                if isinstance(found, _LookUp):
                    by_time.append((rows, len(rows), found))
                    rows.append(partition.partition_index)
                else:
                    rows.append(_row(partition.partition_index, found, request.api_version))
        timeout_ms = body.timeout // _MILLISECOND or self._remote_timeout_ms
        in_tiers = {
            place: asyncio.get_running_loop().create_task(
                self._find_time_in_tier(
                    look_up, look_up.replica.log.log_start_offset, look_up.local_start, timeout_ms / 1000
                )
            )
            for place, (_, _, look_up) in enumerate(by_time)
            if look_up.replica.log.log_start_offset < look_up.local_start
        }
        try:
            for place, (rows, row, look_up) in enumerate(by_time):
                outcome: _Outcome
                try:
                    outcome = await self._find_time(look_up, in_tiers.get(place), timeout_ms / 1000)
                except (KafkaError, OSError) as error:
                    outcome = kafka_error(error)
                rows[row] = _row(rows[row], outcome, request.api_version)
        finally:
            for looking in in_tiers.values():
                looking.cancel()
        answered = []
        for name, rows in topics:
            await turn()
            answered.append(ListOffsetsTopicResponse(name=name, partitions=tuple(rows)))
        return unthrottled(ListOffsetsResponse, topics=tuple(answered))

    def _find(self, topic: str, partition: Any, body: Any) -> "_Found | _LookUp":
        replica = self._table.find(topic, partition.partition_index)
        asked_epoch = partition.current_leader_epoch if partition.current_leader_epoch >= 0 else None
        is_client = body.replica_id < 0 and body.replica_id != _DEBUG_CONSUMER
        if is_client:
            leader = replica.require_leader_for_client(asked_epoch)
        else:
            leader = replica.require_leader_in(asked_epoch)
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
                return _Found(end, None, leader.leader_epoch)
            case int(timestamp) if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
                is_local = timestamp == EARLIEST_LOCAL_TIMESTAMP
                start = log.local_log_start_offset if is_local else log.log_start_offset
                epoch = log.epochs.epoch_at(start)
                return _Found(start, None, leader.leader_epoch if epoch is None else epoch)
            case int(timestamp) if timestamp == LATEST_TIERED_TIMESTAMP:
                return _latest_tiered(replica, is_follower=body.replica_id >= 0)
            case int(timestamp) if timestamp == _EARLIEST_PENDING_UPLOAD_TIMESTAMP:
                return _earliest_pending_upload(replica, leader)
            case int(timestamp) if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
                return _LookUp(
                    replica, leader, asked_epoch, timestamp, end, is_client, log.local_log_start_offset
                )
        raise AssertionError(f"{partition.timestamp} is supported")

    async def _find_time(
        self,
        look_up: _LookUp,
        in_tier: "asyncio.Task[OffsetAndTimestamp | None] | None",
        timeout_s: float,
    ) -> _Outcome:
        replica, leader, asked_epoch, timestamp, end, is_client, _ = look_up
        found = None if in_tier is None else await held(in_tier)
        if found is None or timestamp == MAX_TIMESTAMP:
            looking = asyncio.get_running_loop().run_in_executor(
                self._executor, replica.log.offset_for_timestamp, timestamp, replica.log.log_end_offset
            )
            try:
                in_log = await held(looking)
            except (KafkaError, OSError) as error:
                replica.fail_if_storage(error)
                raise
            dropped = await self._find_time_in_dropped(look_up, timeout_s)
            in_log = _later(dropped, in_log) if timestamp == MAX_TIMESTAMP else dropped or in_log
            found = _later(found, in_log)
        if replica.require_leader_in(asked_epoch) is not leader:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{replica} had another leader in between")
        if found is None:
            return _Found()
        if found.offset >= end:
            _check_available(replica, leader, is_client)
            return _Found()
        return _Found(found.offset, found.timestamp_ms, found.leader_epoch)

    async def _find_time_in_dropped(self, look_up: _LookUp, timeout_s: float) -> OffsetAndTimestamp | None:
        """Look a time up in what local retention has dropped since the look-up began.

        The search of the tier ended before these records, and that of the local log began behind them.

        Raises:
            KafkaError: as `_find_time_in_tier`.
        """
        log = look_up.replica.log
        start, end = max(look_up.local_start, log.log_start_offset), log.local_log_start_offset
        if start >= end:
            return None
        looking = asyncio.get_running_loop().create_task(
            self._find_time_in_tier(look_up, start, end, timeout_s)
        )
        try:
            return await held(looking)
        finally:
            looking.cancel()

    async def _find_time_in_tier(
        self, look_up: _LookUp, start: Offset, end: Offset, timeout_s: float
    ) -> OffsetAndTimestamp | None:
        """Look a time up in the records in [start, end), which only the object store has.

        Raises:
            KafkaError: kafka_storage_error, corrupt_message, request_timed_out.
        """
        replica, timestamp = look_up.replica, look_up.timestamp
        tier = replica.tier
        if self._remote is None or tier is None:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{replica}: no manifest is loaded for the records that only the object store has",
            )
        try:
            async with asyncio.timeout(timeout_s), self._remote_turns:
                if timestamp == MAX_TIMESTAMP:
                    return await latest(self._remote, tier, start, end)
                return await first_at_or_after(self._remote, tier, timestamp, start, end)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.request_timed_out, f"{replica}: the object store did not answer in {timeout_s} s"
            ) from None


def _later(in_tier: OffsetAndTimestamp | None, local: OffsetAndTimestamp | None) -> OffsetAndTimestamp | None:
    """Return the one with the larger timestamp, of equal ones that of the tier."""
    if in_tier is None or local is None:
        return in_tier or local
    return max(in_tier, local, key=lambda found: or_minus_one(found.timestamp_ms))


def _latest_tiered(replica: Replica, *, is_follower: bool) -> _Found:
    """Return the last offset in the object store, with its epoch; nothing (-1) without one.

    A follower deletes what is below the answer from its disk, so it gets nothing while the leader itself may
    not delete: another leader or application may have replaced the manifest.

    Raises:
        KafkaError: offset_not_available to a client while the leader does not know its tier yet. Kafka's
            leader answers -1 then, by which a query would be planned as if there were no tier.
    """
    if replica.tier is None:
        if replica.awaits_tier and not is_follower:
            raise KafkaError(
                ErrorCode.offset_not_available, f"{replica}: the manifest of its tier is not read yet"
            )
        return _Found()
    end = replica.tier.tiered_end_offset if is_follower else replica.tier.manifest.end_offset
    return _Found(end - 1, None, replica.log.epochs.epoch_at(end - 1)) if end else _Found()


def _earliest_pending_upload(replica: Replica, leader: PartitionLeader) -> _Found:
    """Return the first offset that is not in the object store yet; nothing (-1) without a tier."""
    if replica.tier is None:
        return _Found()
    log = replica.log
    start = max(replica.tier.manifest.end_offset, log.log_start_offset)
    epoch = log.epochs.epoch_at(start)
    return _Found(start, None, leader.leader_epoch if epoch is None else epoch)


def _check_supported(timestamp: int, api_version: int) -> None:
    if timestamp < 0 and api_version < _FIRST_VERSIONS.get(timestamp, api_version + 1):
        raise KafkaError(
            ErrorCode.unsupported_version, f"ListOffsets {api_version} knows no special time {timestamp}"
        )


def _row(partition: int, outcome: _Outcome, api_version: int) -> ListOffsetsPartitionResponse:
    found = outcome if isinstance(outcome, _Found) else _Found()
    if isinstance(outcome, _Found):
        error_code = ErrorCode.none
    else:
        error_code = outcome.error_code
        if error_code == ErrorCode.offset_not_available and api_version < _FIRST_OFFSET_NOT_AVAILABLE_VERSION:
            error_code = ErrorCode.leader_not_available
    return ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=error_code,
        timestamp=or_minus_one(found.timestamp_ms),
        offset=or_minus_one(found.offset),
        leader_epoch=or_minus_one(found.leader_epoch),
    )


def _check_available(replica: Replica, leader: PartitionLeader, is_client: bool) -> None:
    if is_client and leader.high_watermark_is_behind_epoch:
        raise KafkaError(
            ErrorCode.offset_not_available,
            f"{replica}: the high watermark {leader.high_watermark} has not reached the start "
            f"{leader.leader_epoch_start_offset} of leader epoch {leader.leader_epoch}",
        )


async def _named_twice(body: Any) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in body.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            (twice if key in seen else seen).add(key)
            await turn()
    return twice
