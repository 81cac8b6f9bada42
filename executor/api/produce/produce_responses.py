"""Produce responses: the entities of a version for the results of an append."""

import datetime
import importlib
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.index import load_response_schema

from sparklog.executor.api.current_leaders import CurrentLeaders
from sparklog.executor.api.produce.delayed_produce import DelayedProduce, ProducedPartition
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.serving.requests import Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.storage.results import AppendInfo
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

_PRODUCE: Final = 0
_NONE: Final = ErrorCode.none
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_NOTHING: Final = AppendInfo(-1, -1, None, -1)
"""The wire's values where no batch was appended."""


class _Types(NamedTuple):
    response: Any
    topic: Any
    partition: Any
    leader: Any
    node: Any
    record_error: Any


@cache
def _types(version: int) -> _Types:
    module = importlib.import_module(load_response_schema(_PRODUCE, version).__module__)
    return _Types(
        module.ProduceResponse,
        module.TopicProduceResponse,
        module.PartitionProduceResponse,
        getattr(module, "LeaderIdAndEpoch", None),
        getattr(module, "NodeEndpoint", None),
        getattr(module, "BatchIndexAndErrorMessage", None),
    )


def produce_response(produce: DelayedProduce, table: PartitionTable) -> Any:
    rows = _Rows(produce, table)
    for produced in produce.parts:
        rows.add(produced)
    return rows.response()


async def produce_response_of_many(produce: DelayedProduce, table: PartitionTable) -> Response:
    """Make the response entity of a request with many partitions, in slices."""
    rows = _Rows(produce, table)
    for produced in produce.parts:
        rows.add(produced)
        await turn()
    return rows.response()


class _Rows:
    """The rows of one response, by topic."""

    __slots__ = ("_leaders", "_produce", "_table", "_topics", "_types")

    def __init__(self, produce: DelayedProduce, table: PartitionTable) -> None:
        self._produce = produce
        self._table = table
        self._types = _types(produce.version)
        self._topics: dict[UUID | str | None, list[Any]] = {}
        self._leaders: CurrentLeaders | None = None
        """None until a partition has failed."""

    def add(self, produced: ProducedPartition) -> None:
        version, types = self._produce.version, self._types
        extra: dict[str, Any] = {}
        appended = produced.appended or _NOTHING
        if version >= 5:
            refused_at = produced.log_start_offset
            extra["log_start_offset"] = appended.log_start_offset if refused_at is None else refused_at
        if version >= 8:
            extra["record_errors"] = tuple(
                [
                    types.record_error(batch_index=each.batch_index, batch_index_error_message=each.message)
                    for each in produced.record_errors
                ]
            )
            extra["error_message"] = produced.message
        if produced.error_code is not _NONE:
            if self._leaders is None:
                self._leaders = CurrentLeaders(
                    self._table, self._produce.listener_name, types.leader, types.node
                )
            self._leaders.add(extra, produced.error_code, produced.topic, produced.partition)
        append_time_ms = appended.log_append_time_ms
        row = types.partition(
            index=produced.partition,
            error_code=produced.error_code,
            base_offset=appended.base_offset,
            log_append_time=None if append_time_ms is None else _EPOCH + append_time_ms * _MILLISECOND,
            **extra,
        )
        self._topics.setdefault(produced.topic, []).append(row)

    def response(self) -> Any:
        types, leaders = self._types, self._leaders
        name_field = "topic_id" if self._produce.version >= 13 else "name"
        extra = {"node_endpoints": tuple(leaders.nodes.values())} if leaders and leaders.nodes else {}
        return unthrottled(
            types.response,
            responses=tuple(
                [
                    types.topic(**{name_field: topic}, partition_responses=tuple(rows))
                    for topic, rows in self._topics.items()
                ]
            ),
            **extra,
        )
