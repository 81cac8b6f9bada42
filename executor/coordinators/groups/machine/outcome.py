"""What one decision adds up to, while it is being made."""

from typing import Any

from sparklog.executor.coordinators.machine.decision import CoordinatorRecord, Decision, Reply, Token


class Outcome:
    """Records and replies of one decision, from all who have a part in it."""

    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []

    def reply(self, token: Token, response: Any) -> None:
        """Answer a request with this decision."""
        self.replies.append(Reply(token, response))

    def decision(self) -> Decision:
        """Return all of it."""
        return Decision(self.records, self.replies)
