"""ConsumerGroupDescribe, versions 0 and 1: groups of the consumer protocol, with their members and epochs."""

from collections.abc import Callable
from dataclasses import replace

from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse

from sparklog.executor.coordinators.groups.api.consumer_group_heartbeat import serves_consumer_groups
from sparklog.executor.coordinators.groups.api.large_requests import answers_of
from sparklog.executor.coordinators.groups.machine.consumer.description import undescribed_group
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.authorized_operations import GROUP_OPERATIONS
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode


class ConsumerGroupDescribeHandler:
    def __init__(self, coordinators: CoordinatorRuntime, image: Callable[[], MetadataImage]) -> None:
        self._coordinators = coordinators
        self._image = image

    async def handle(self, request: Request) -> Response:
        body = request.body
        serves = serves_consumer_groups(self._image())

        def describe(group_id: str) -> Deferred:
            def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
                group = machine.consumer.describe(group_id)
                if body.include_authorized_operations and group.error_code is ErrorCode.none:
                    group = replace(group, authorized_operations=GROUP_OPERATIONS)
                return CoordinatorResult(replies=(Reply(token, group),))

            def refuse(error_code: ErrorCode) -> object:
                return undescribed_group(group_id, error_code)

            if not serves or not group_id:
                refused = Deferred()
                code = ErrorCode.invalid_group_id if serves else ErrorCode.unsupported_version
                refused.complete(refuse(code))
                return refused
            return self._coordinators.submit(group_id, decide, refuse)

        groups = await answers_of(body.group_ids, describe)
        return unthrottled(ConsumerGroupDescribeResponse, groups=tuple(groups))
