"""Fetch responses: the entities of a version for the results of a fetch.

The one place where a fetch's errors become codes. An error carries the offsets of the leader's log where
they are known: a follower that is out of range needs the leader's log start offset.
"""

import importlib
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.index import load_response_schema

from sparklog.executor.api.current_leaders import CurrentLeaders
from sparklog.executor.api.fetch.fetch_progress import FetchedPartition
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.fixed.fetch import (
    MOST_PARTITIONS,
    FetchedData,
    FetchedTopic,
    FollowerFetchResponse,
)
from sparklog.protocol.errors import ErrorCode

_FETCH: Final = 1
_UNKNOWN: Final = -1


class _Types(NamedTuple):
    response: Any
    topic: Any
    partition: Any
    aborted: Any
    epoch_end: Any
    leader: Any
    node: Any


@cache
def _types(version: int) -> _Types:
    module = importlib.import_module(load_response_schema(_FETCH, version).__module__)
    return _Types(
        module.FetchResponse,
        module.FetchableTopicResponse,
        module.PartitionData,
        module.AbortedTransaction,
        getattr(module, "EpochEndOffset", None),
        getattr(module, "LeaderIdAndEpoch", None),
        getattr(module, "NodeEndpoint", None),
    )


def fetch_response(
    version: int,
    partitions: list[FetchedPartition],
    table: PartitionTable,
    listener_name: str,
    *,
    session_id: int = 0,
    error_code: ErrorCode = ErrorCode.none,
) -> Any:
    """Return the response entity of `version`, for a client of that listener."""
    types = _types(version)
    topics: dict[UUID | str, list[Any]] = {}
    leaders = CurrentLeaders(table, listener_name, types.leader, types.node)
    for fetched in partitions:
        key = fetched.asked.key
        topics.setdefault(key.topic, []).append(_partition(version, types, fetched, leaders))
    name_field = "topic_id" if version >= 13 else "topic"
    extra: dict[str, Any] = {}
    if version >= 7:
        extra["error_code"] = error_code
        extra["session_id"] = session_id
    if leaders.nodes:
        extra["node_endpoints"] = tuple(leaders.nodes.values())
    return unthrottled(
        types.response,
        responses=tuple(
            types.topic(**{name_field: topic}, partitions=tuple(rows)) for topic, rows in topics.items()
        ),
        **extra,
    )


def follower_response(partitions: list[FetchedPartition], session_id: int) -> FollowerFetchResponse | None:
    """Return the response to a follower's fixed request; None if it has to be an entity."""
    if len(partitions) > MOST_PARTITIONS:
        return None
    topics: dict[UUID, list[FetchedData]] = {}
    for fetched in partitions:
        topic_id, partition = fetched.asked.key
        if fetched.sends_elsewhere or fetched.aborted_transactions is not None or isinstance(topic_id, str):
            return None
        region = fetched.region
        data = FetchedData(
            partition,
            fetched.high_watermark,
            fetched.last_stable_offset,
            fetched.log_start_offset,
            b"" if region is None else region,
        )
        of_topic = topics.get(topic_id)
        if of_topic is None:
            topics[topic_id] = [data]
        else:
            of_topic.append(data)
    return FollowerFetchResponse(session_id, [FetchedTopic(*item) for item in topics.items()])


def _partition(version: int, types: _Types, fetched: FetchedPartition, leaders: CurrentLeaders) -> Any:
    extra: dict[str, Any] = {}
    if version >= 5:
        extra["log_start_offset"] = fetched.log_start_offset
    if version >= 11:
        preferred = fetched.preferred_read_replica
        extra["preferred_read_replica"] = _UNKNOWN if preferred is None else preferred
    if version >= 12 and fetched.diverging_epoch is not None:
        epoch, end_offset = fetched.diverging_epoch
        extra["diverging_epoch"] = types.epoch_end(epoch=epoch, end_offset=end_offset)
    error_code = fetched.error_code
    if error_code is not ErrorCode.none:
        leaders.add(extra, error_code, *fetched.asked.key)
    aborted = fetched.aborted_transactions
    return types.partition(
        partition_index=fetched.asked.key.partition,
        error_code=error_code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        aborted_transactions=None
        if aborted is None
        else tuple(
            types.aborted(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in aborted
        ),
        records=b"" if fetched.region is None else fetched.region,
        **extra,
    )
