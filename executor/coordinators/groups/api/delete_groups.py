"""DeleteGroups, versions 0 to 2: empty groups with their offsets (KIP-229)."""

from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from sparklog.executor.coordinators.groups.api.large_requests import answers_of
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode


class DeleteGroupsHandler:
    """Answers DeleteGroups when the tombstones are committed."""

    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    async def handle(self, request: Request) -> Response:
        """Delete the groups; one with many offsets in several batches."""
        body = await upgrade_in_steps(request.body)
        results: dict[str, ErrorCode] = {}
        left = list(dict.fromkeys(body.groups_names))
        while left:
            answers = await answers_of(left, self._delete)
            results.update(
                (group_id, error_code) for group_id, (error_code, _) in zip(left, answers, strict=True)
            )
            left = [group_id for group_id, (_, is_done) in zip(left, answers, strict=True) if not is_done]
        return unthrottled(
            DeleteGroupsResponse,
            results=tuple(
                DeletableGroupResult(group_id=group_id, error_code=error_code)
                for group_id, error_code in results.items()
            ),
        )

    def _delete(self, group_id: str) -> Deferred:
        def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
            error_code, records, is_done = machine.delete_group(group_id)
            return CoordinatorResult(records, (Reply(token, (error_code, is_done)),))

        return self._coordinators.submit(group_id, decide, lambda error_code: (error_code, True))
