"""Records and replies of a decision in the making."""

from typing import Any

from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Reply,
    Token,
)


class Outcome:
    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []

    def reply(self, token: Token, response: Any) -> None:
        self.replies.append(Reply(token, response))

    def decision(self) -> CoordinatorResult:
        return CoordinatorResult(self.records, self.replies)
