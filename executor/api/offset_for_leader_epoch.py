"""OffsetForLeaderEpoch: the end offset of a leader epoch in this log (KIP-101, KIP-320). Versions 2 to 4."""

from collections.abc import Mapping
from typing import Any

from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    return {ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(services.replicas.table).handle}


class OffsetForLeaderEpochHandler:
    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    async def handle(self, request: Request) -> Response:
        """Answer each partition on its own; -1 where the epoch is unknown here."""
        body = await upgrade_in_steps(request.body)
        topics = []
        for topic in body.topics:
            partitions = []
            for partition in topic.partitions:
                partitions.append(self._end(topic.topic, partition))
                await turn()
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions)))
            await turn()
        return unthrottled(OffsetForLeaderEpochResponse, topics=tuple(topics))

    def _end(self, topic: str, asked: Any) -> EpochEndOffset:
        try:
            replica = self._table.find(topic, asked.partition)
            current = asked.current_leader_epoch
            leader = replica.require_leader_in(current if current >= 0 else None)
        except KafkaError as error:
            return EpochEndOffset(error_code=error.error_code, partition=asked.partition)
        if asked.leader_epoch == leader.leader_epoch:
            # The epoch in which nothing may have been written yet.
            return _found(asked.partition, leader.leader_epoch, replica.log.log_end_offset)
        known = replica.log.end_offset_for(asked.leader_epoch)
        if known is None or asked.leader_epoch > leader.leader_epoch:
            return _found(asked.partition, -1, -1)
        return _found(asked.partition, *known)


def _found(partition: int, leader_epoch: int, end_offset: int) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=ErrorCode.none, partition=partition, leader_epoch=leader_epoch, end_offset=end_offset
    )
