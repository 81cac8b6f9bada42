"""Records and replies of a decision in the making."""

from typing import Any

from sparklog.executor.coordinators.machine.decision import CoordinatorRecord, Decision, Reply, Token


class Outcome:
    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []

    def reply(self, token: Token, response: Any) -> None:
        self.replies.append(Reply(token, response))

    def decision(self) -> Decision:
        return Decision(self.records, self.replies)
