"""What the handlers ask of the runtime, and how they wait for several answers of it.

A request for many groups is answered in steps, a bounded number of them asked for at a time, so that a
million hold nobody up and what waits is bounded.
"""

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from sparklog.errors import ErrorCode
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.decision import Decision, Now, Token
from sparklog.wire.requests import Deferred, Response

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


def wait_for(deferred: Deferred) -> Generator[Any, None, Any]:
    """Return what a Deferred is completed with; a step of a request that waits for it."""
    answers: list[Any] = []
    if not deferred.completed:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(response: Any) -> None:
            answers.append(response)
            done.set_result(None)

        deferred.bind(answer)
        try:
            yield done
        except GeneratorExit:  # the connection has gone
            deferred.abandon()
            raise
    else:
        deferred.bind(answers.append)
    return answers[0]


def wait_for_each(
    items: Iterable[_Item], submit: Callable[[_Item], Deferred]
) -> Generator[Any, None, list[Any]]:
    """Return what each item's Deferred is completed with; some of them wait side by side."""
    answers = []
    left = iter(items)
    while chunk := tuple(islice(left, SIDE_BY_SIDE)):
        waiting = []
        for item in chunk:
            waiting.append(submit(item))
            yield
        for deferred in waiting:
            answers.append((yield from wait_for(deferred)))
    return answers
