"""OffsetDelete, version 0 (KIP-496)."""

from collections.abc import Callable

from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from sparklog.executor.coordinators.groups.api.large_requests import Chunk, in_chunks
from sparklog.executor.coordinators.groups.api.offset_topics import named_topic
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode


class OffsetDeleteHandler:
    def __init__(self, coordinators: CoordinatorRuntime, image: Callable[[], MetadataImage]) -> None:
        self._coordinators = coordinators
        self._image = image

    async def handle(self, request: Request) -> Response:
        body = request.body
        image = self._image()
        answers: dict[str, dict[int, ErrorCode]] = {}
        for topic in body.topics:
            named = named_topic(image, topic, by_id=False)
            rows = answers.setdefault(topic.name, {})
            for partition in topic.partitions:
                await turn()
                index = partition.partition_index
                is_known = index in named.partitions
                rows[index] = ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition
        if not body.group_id:
            return _error(ErrorCode.invalid_group_id)
        known = [
            (topic, None, [index for index, error_code in rows.items() if error_code is ErrorCode.none])
            for topic, rows in answers.items()
        ]
        # Even without partitions the coordinator checks the group, which may not exist.
        for chunk in in_chunks(known) if known else ((),):
            error_code, errors = await held(self._delete(body.group_id, chunk))
            if error_code is not ErrorCode.none:
                return _error(error_code)
            for topic, deleted in errors:
                answers[topic].update(deleted)
        topics = []
        for topic, rows in answers.items():
            partitions = []
            for index, error_code in rows.items():
                await turn()
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error_code))
            topics.append(OffsetDeleteResponseTopic(name=topic, partitions=tuple(partitions)))
        return unthrottled(OffsetDeleteResponse, error_code=ErrorCode.none, topics=tuple(topics))

    def _delete(self, group_id: str, chunk: Chunk) -> Deferred:
        topics = [(topic, partitions) for topic, _, partitions in chunk]

        def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
            error_code, records, errors = machine.offsets.delete(group_id, topics)
            return CoordinatorResult(records, (Reply(token, (error_code, errors)),))

        return self._coordinators.submit(group_id, decide, lambda error_code: (error_code, ()))


def _error(error_code: ErrorCode) -> Response:
    return unthrottled(OffsetDeleteResponse, error_code=error_code, topics=())
