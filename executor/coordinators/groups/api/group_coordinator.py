"""Interface between the handlers and the runtime, and waiting for several of its replies.

A request for many groups is answered in steps, with a bounded number of groups submitted at a time: a million
do not block the loop, and the open requests are bounded.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Token
from sparklog.node.serving.requests import Deferred, Response
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

SIDE_BY_SIDE: Final = 100
"""Groups of one request that are submitted before the first reply is awaited."""

Refuse = Callable[[ErrorCode], Response]

_Item = TypeVar("_Item")
_Event = TypeVarTuple("_Event")


class GroupCoordinator(Protocol):
    def submit(
        self,
        key: str,
        decide: Callable[[GroupMachine, *_Event, Token, Now], CoordinatorResult],
        refuse: Refuse,
        *event: *_Event,
        waits_for_others: bool = False,
    ) -> Deferred: ...

    def submit_to(
        self,
        partition: int,
        decide: Callable[[GroupMachine, *_Event, Token, Now], CoordinatorResult],
        refuse: Refuse,
        *event: *_Event,
    ) -> Deferred: ...

    def is_complete(self) -> bool:
        """Whether all groups have a coordinator, here or elsewhere, as far as this broker knows."""

    @property
    def partitions(self) -> Collection[int]:
        """The partitions whose coordinator is here, loaded or loading."""


async def answers_of(items: Iterable[_Item], submit: Callable[[_Item], Deferred]) -> list[Any]:
    """Return the reply for each item; at most `SIDE_BY_SIDE` items are open at a time."""
    answers = []
    left = iter(items)
    while chunk := tuple(islice(left, SIDE_BY_SIDE)):
        waiting = []
        for item in chunk:
            waiting.append(submit(item))
            await turn()
        for deferred in waiting:
            answers.append(await held(deferred))
    return answers
