"""ListGroups, versions 0 to 5: the groups that this broker coordinates; clients ask all brokers."""

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, TypeVarTuple

from kio.schema.list_groups.v5.response import ListedGroup as ListedGroupResponse
from kio.schema.list_groups.v5.response import ListGroupsResponse

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode

SLICE_GROUPS: Final = 200

_Event = TypeVarTuple("_Event")


class ListGroupsHandler:
    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    async def handle(self, request: Request) -> Response:
        """Collect the group ids of each partition, and then their rows in slices.

        A partition that is loading fails the request, for its groups would be missing, and so does one
        without a coordinator. A partition that has moved is listed by its new leader.
        """
        body = await upgrade_in_steps(request.body)
        states = frozenset(state.strip().lower() for state in body.states_filter)
        types = frozenset(group_type.lower() for group_type in body.types_filter)
        rows: list[Any] = []
        if not self._coordinators.is_complete():
            return _refusal(ErrorCode.coordinator_not_available)
        for partition in tuple(self._coordinators.partitions):
            error_code, group_ids = await self._ask(partition, _ids)
            while error_code is ErrorCode.none and (chunk := tuple(islice(group_ids, SLICE_GROUPS))):
                error_code, listed = await self._ask(partition, _listed, chunk, states, types)
                rows.extend(listed)
            if error_code not in (ErrorCode.none, ErrorCode.not_coordinator):
                return _refusal(error_code)
        if not self._coordinators.is_complete():  # a coordinator ended meanwhile
            return _refusal(ErrorCode.coordinator_not_available)
        return unthrottled(ListGroupsResponse, error_code=ErrorCode.none, groups=tuple(rows))

    async def _ask(
        self,
        partition: int,
        decide: Callable[[GroupMachine, *_Event, Token, Now], CoordinatorResult],
        *event: *_Event,
    ) -> Any:
        await turn()
        return await held(
            self._coordinators.submit_to(partition, decide, lambda error_code: (error_code, iter(())), *event)
        )


def _refusal(error_code: ErrorCode) -> ListGroupsResponse:
    return unthrottled(ListGroupsResponse, error_code=error_code, groups=())


def _ids(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
    return CoordinatorResult(replies=(Reply(token, (ErrorCode.none, machine.groups.ids())),))


def _listed(
    machine: GroupMachine,
    group_ids: tuple[str, ...],
    states: frozenset[str],
    types: frozenset[str],
    token: Token,
    now: Now,
) -> CoordinatorResult:
    rows = tuple(
        ListedGroupResponse(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=str(group.group_type),
        )
        for group in machine.list_groups(group_ids, states, types)
    )
    return CoordinatorResult(replies=(Reply(token, (ErrorCode.none, rows)),))
