"""OffsetCommit, versions 2 to 10; the last one names topics by id."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from kio.schema.offset_commit import v9, v10

from sparklog.executor.coordinators.groups.api.offset_topics import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    CommittedTopics,
    Topics,
    all_refused,
    answer_commit,
    committed_topics,
)
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.offsets import OffsetCommit, TopicErrors
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

_MILLISECOND: Final = timedelta(milliseconds=1)


class OffsetCommitHandler:
    def __init__(
        self, coordinators: CoordinatorRuntime, image: Callable[[], MetadataImage], *, max_batch_bytes: int
    ) -> None:
        """`max_batch_bytes`: size limit of a batch of the offsets' topic."""
        self._coordinators = coordinators
        self._image = image
        self._max_batch_bytes = max_batch_bytes

    async def handle(self, request: Request) -> Response:
        body = request.body
        by_id = request.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        checked = await committed_topics(self._image(), body, by_id=by_id)

        def respond(errors: TopicErrors) -> Awaitable[Response]:
            return _response(checked, errors, by_id=by_id)

        if not checked.topics:
            return await respond([])
        if not checked.fits(self._max_batch_bytes):
            return await respond(checked.refused(ErrorCode.unknown_server_error))
        retention_ms = getattr(body, "retention_time", -_MILLISECOND) // _MILLISECOND
        commit = OffsetCommit(
            group_id=body.group_id,
            member_id=body.member_id,
            group_instance_id=getattr(body, "group_instance_id", None),
            generation_or_member_epoch=body.generation_id_or_member_epoch,
            api_version=request.api_version,
            topics=checked.topics,
            retention_ms=None if retention_ms == -1 else retention_ms,
        )

        def submit(topics: Topics) -> Deferred:
            def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
                records, errors = machine.commit_offsets(commit._replace(topics=topics), now)
                return CoordinatorResult(records, (Reply(token, errors),))

            return self._coordinators.submit(
                commit.group_id, decide, lambda error_code: all_refused(topics, error_code)
            )

        return await answer_commit(checked, respond, submit)


async def _response(checked: CommittedTopics, errors: TopicErrors, *, by_id: bool) -> Response:
    schema: Any = v10.response if by_id else v9.response
    topics = []
    for named, partitions in await checked.answers(errors):
        rows = []
        for partition, error_code in partitions:
            await turn()
            rows.append(
                schema.OffsetCommitResponsePartition(partition_index=partition, error_code=error_code)
            )
        topics.append(
            schema.OffsetCommitResponseTopic(
                **{"topic_id" if by_id else "name": named}, partitions=tuple(rows)
            )
        )
    return unthrottled(schema.OffsetCommitResponse, topics=tuple(topics))
