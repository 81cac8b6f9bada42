"""OffsetFetch, versions 1 to 10: several groups from version 8 on, topics by id from version 10 on."""

from collections.abc import Callable
from typing import Any, Final

from kio.schema.offset_fetch import v7, v9, v10

from sparklog.executor.coordinators.groups.api.large_requests import in_chunks
from sparklog.executor.coordinators.groups.api.offset_topics import FIRST_VERSION_WITH_TOPIC_IDS, named_topic
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.offsets import FetchedOffset, OffsetFetch
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import or_minus_one

FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_GROUP_ERRORS: Final = 2

_Topics = dict[Any, list[FetchedOffset]]
"""By name or id, as the response has them."""


class OffsetFetchHandler:
    def __init__(self, coordinators: CoordinatorRuntime, image: Callable[[], MetadataImage]) -> None:
        self._coordinators = coordinators
        self._image = image

    async def handle(self, request: Request) -> Response:
        body = request.body
        version = request.api_version
        require_stable = getattr(body, "require_stable", False)
        groups = body.groups if version >= FIRST_VERSION_WITH_GROUPS else (body,)
        answers = []
        for group in groups:
            await turn()
            answers.append(await self._group(group, version, require_stable=require_stable))
        if version < FIRST_VERSION_WITH_GROUPS:
            return answers[0]
        schema: Any = v10.response if version >= FIRST_VERSION_WITH_TOPIC_IDS else v9.response
        return unthrottled(schema.OffsetFetchResponse, groups=tuple(answers))

    async def _group(self, group: Any, version: int, *, require_stable: bool) -> Response:
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        image = self._image()
        fetch = OffsetFetch(
            group_id=group.group_id,
            member_id=getattr(group, "member_id", None),
            member_epoch=getattr(group, "member_epoch", -1),
            topics=(),
            require_stable=require_stable,
        )
        topics: _Topics = {}
        named: dict[str, Any] = {}
        if group.topics is None:
            committed = await self._committed_partitions(fetch)
            if isinstance(committed, ErrorCode):
                return _group_response(fetch.group_id, version, committed, {})
            asked = []
            for name, _, partitions in committed:
                found = image.topics.by_name.get(name)
                if by_id and found is None:
                    continue  # the response has only ids, and a deleted topic has none
                named[name] = found.topic_id if by_id and found is not None else name
                asked.append((name, found.topic_id if by_id and found is not None else None, partitions))
                await turn()
        else:
            asked = []
            for topic in group.topics:
                await turn()
                found_topic = named_topic(image, topic, by_id=by_id)
                if by_id and found_topic.error_code is not ErrorCode.none:
                    topics[found_topic.named] = [
                        FetchedOffset(partition, None, found_topic.error_code)
                        for partition in topic.partition_indexes
                    ]
                    continue
                named[found_topic.name] = found_topic.named
                topic_id = found_topic.topic_id if by_id else None
                asked.append((found_topic.name, topic_id, topic.partition_indexes))
        # Even without topics the coordinator checks the member.
        for chunk in in_chunks(asked) if asked else ((),):
            error_code, fetched = await self._fetch(fetch._replace(topics=chunk))
            if error_code is not ErrorCode.none:
                if group.topics is None:
                    topics = {}
                return _group_response(fetch.group_id, version, error_code, topics, group.topics)
            for name, rows in fetched:
                if group.topics is not None:
                    topics.setdefault(named[name], []).extend(rows)
                elif there := [row for row in rows if row.committed is not None or _is_error(row)]:
                    # Without offsets deleted meanwhile, and those of an older topic of the name.
                    topics.setdefault(named[name], []).extend(there)
                await turn()
        return _group_response(fetch.group_id, version, ErrorCode.none, topics)

    async def _committed_partitions(self, fetch: OffsetFetch) -> Any:
        def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
            return CoordinatorResult(replies=(Reply(token, machine.offsets.committed_partitions(fetch)),))

        return await held(self._coordinators.submit(fetch.group_id, decide, _refuse))

    async def _fetch(self, fetch: OffsetFetch) -> Any:
        def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
            return CoordinatorResult(replies=(Reply(token, machine.offsets.fetch(fetch)),))

        return await held(
            self._coordinators.submit(fetch.group_id, decide, lambda error_code: (_refuse(error_code), ()))
        )


def _refuse(error_code: ErrorCode) -> ErrorCode:
    """Replace an error that clients before 3.9 do not retry."""
    return ErrorCode.not_coordinator if error_code is ErrorCode.coordinator_not_available else error_code


def _is_error(row: FetchedOffset) -> bool:
    return row.error_code is not ErrorCode.none


def _group_response(
    group_id: str, version: int, error_code: ErrorCode, topics: _Topics, asked: Any = None
) -> Response:
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if version >= FIRST_VERSION_WITH_GROUPS:
        schema: Any = v10.response if by_id else v9.response
        return schema.OffsetFetchResponseGroup(
            group_id=group_id,
            topics=tuple(
                schema.OffsetFetchResponseTopics(
                    **{"topic_id" if by_id else "name": named},
                    partitions=tuple(_partition(schema.OffsetFetchResponsePartitions, row) for row in rows),
                )
                for named, rows in topics.items()
            )
            if error_code is ErrorCode.none
            else (),
            error_code=error_code,
        )
    if error_code is not ErrorCode.none:
        topics = {}
        if version < FIRST_VERSION_WITH_GROUP_ERRORS:  # these versions have errors by partition only
            for topic in asked or ():
                topics[topic.name] = [
                    FetchedOffset(partition, None, error_code) for partition in topic.partition_indexes
                ]
    old = v7.response
    return unthrottled(
        old.OffsetFetchResponse,
        topics=tuple(
            old.OffsetFetchResponseTopic(
                name=named,
                partitions=tuple(_partition(old.OffsetFetchResponsePartition, row) for row in rows),
            )
            for named, rows in topics.items()
        ),
        error_code=error_code,
    )


def _partition(partition_type: Any, row: FetchedOffset) -> Any:
    committed = row.committed
    return partition_type(
        partition_index=row.partition,
        committed_offset=-1 if committed is None else committed.offset,
        committed_leader_epoch=-1 if committed is None else or_minus_one(committed.leader_epoch),
        metadata="" if committed is None else committed.metadata,
        error_code=row.error_code,
    )
