"""What the handlers ask of the runtime, and how they wait for several answers of it.

A request for many groups is answered in steps, a bounded number of them asked for at a time, so that a
million hold nobody up and what waits is bounded.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.decision import Decision, Now, Token
from sparklog.node.serving.requests import Deferred, Response
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

SIDE_BY_SIDE: Final = 100
"""How many groups of one request are decided about before the first of them is waited for."""

Decide = Callable[[GroupMachine, Token, Now], Decision]
Refuse = Callable[[ErrorCode], Response]

_Item = TypeVar("_Item")


class GroupCoordinator(Protocol):
    """The runtime of the group coordinator (`coordinators.runtime.CoordinatorRuntime`)."""

    def submit(self, key: str, decide: Decide, refuse: Refuse, *, waits_for_others: bool = False) -> Deferred:
        """Have the coordinator of a group decide about a request."""

    def submit_to(self, partition: int, decide: Decide, refuse: Refuse) -> Deferred:
        """Have the coordinator of a partition decide about a request."""

    def is_complete(self) -> bool:
        """Whether all groups have a coordinator, here or elsewhere, as far as this broker knows."""

    @property
    def partitions(self) -> Collection[int]:
        """The partitions that are coordinated here, or will be once they are loaded."""


async def answers_of(items: Iterable[_Item], submit: Callable[[_Item], Deferred]) -> list[Any]:
    """Return what each item's Deferred is completed with; some of them wait side by side."""
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
