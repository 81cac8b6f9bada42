"""What the machine is told about a caller, and what it answers.

The order for whoever runs the machine: call it, append `records` as one batch, give them back to the
machine with `Controller.replay` at once (so that the next decision sees them), make the batch durable,
and only then send `reply`.
"""

from typing import Any, NamedTuple

__all__ = ["Caller", "Decision"]


class Caller(NamedTuple):
    """Who asks: for log lines, never for a decision about authority."""

    client_id: str | None = None
    forwarded: bool = False


class Decision(NamedTuple):
    """Metadata records that take effect together, and the response for when they have.

    `reply` is a response entity of the newest version; `None` where nobody waits for an answer.
    """

    records: list[Any]
    reply: Any
