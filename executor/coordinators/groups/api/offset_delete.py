"""OffsetDelete, version 0 (KIP-496)."""

from collections.abc import Callable, Sequence
from itertools import chain

from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from executor.coordinators.groups.api.coordinator import GroupCoordinator
from executor.coordinators.groups.api.topic_names import named_topic
from executor.coordinators.groups.machine.offsets import TopicErrors
from executor.coordinators.groups.machine.shard import GroupShard
from executor.coordinators.machine.decision import Decision, Now, Reply, Token
from sparklog.errors import ErrorCode
from sparklog.metadata.image import MetadataImage
from sparklog.wire.requests import Request, Response, Steps
from sparklog.wire.throttling import unthrottled

__all__ = ["OffsetDeleteHandler"]


class OffsetDeleteHandler:
    """Answers OffsetDelete when the tombstones are committed."""

    def __init__(self, coordinator: GroupCoordinator, image: Callable[[], MetadataImage]) -> None:
        self._coordinator = coordinator
        self._image = image

    def handle(self, request: Request) -> Steps:
        """Have the group's coordinator delete the offsets of partitions that exist."""
        body = request.body
        image = self._image()
        topics: list[tuple[str, Sequence[int]]] = []
        unknown: TopicErrors = []
        for topic in body.topics:
            known_partitions = []
            unknown_partitions = []
            named = named_topic(image, topic, by_id=False)
            for partition in topic.partitions:
                yield
                index = partition.partition_index
                if index in named.partitions:
                    known_partitions.append(index)
                else:
                    unknown_partitions.append((index, ErrorCode.unknown_topic_or_partition))
            if known_partitions:
                topics.append((topic.name, known_partitions))
            if unknown_partitions:
                unknown.append((topic.name, unknown_partitions))
        if not body.group_id:
            return _response(ErrorCode.invalid_group_id, ())

        def decide(shard: GroupShard, token: Token, now: Now) -> Decision:
            error_code, records, errors = shard.offsets.delete(body.group_id, topics)
            told = () if error_code is not ErrorCode.none else _merged(errors, unknown)
            return Decision(records, (Reply(token, _response(error_code, told)),))

        return self._coordinator.submit(body.group_id, decide, lambda error_code: _response(error_code, ()))


def _merged(errors: TopicErrors, unknown: TopicErrors) -> TopicErrors:
    merged: dict[str, list[tuple[int, ErrorCode]]] = {}
    for topic, partitions in chain(errors, unknown):
        merged.setdefault(topic, []).extend(partitions)
    return list(merged.items())


def _response(error_code: ErrorCode, topics: Sequence[tuple[str, list[tuple[int, ErrorCode]]]]) -> Response:
    return unthrottled(
        OffsetDeleteResponse,
        error_code=error_code,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=tuple(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                    for index, error in partitions
                ),
            )
            for topic, partitions in topics
        ),
    )
