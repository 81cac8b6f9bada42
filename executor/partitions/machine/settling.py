"""Requests that are answered when all of their parts are settled, and at the latest when their time is up.

Parts are settled by the high watermark, by followers or by a coordinator. A part that is not settled in time
is REQUEST_TIMED_OUT, and may yet be done.

Pure. Order for the caller: enter all parts, and have them settled by others; then `begin` once, with the call
that answers, and have `expire` called at the deadline.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sparklog.protocol.errors import ErrorCode, KafkaError


class SettlingPart:
    __slots__ = ("error_code", "replica", "settled", "settling")

    def __init__(self, settling: "Settling[SettlingPart]") -> None:
        self.settling = settling
        self.error_code = ErrorCode.none
        self.replica: Any = None
        """The replica in which it happens, once that is found."""
        self.settled = True
        """Whether there is nothing to wait for (any more)."""

    def fail(self, error: KafkaError) -> None:
        """Set the error of a part that was not done, or cannot be acknowledged."""
        self.error_code = error.error_code

    def settle(self, error: KafkaError | None) -> None:
        """Note that the part is done (None), or never will be as far as this broker knows."""
        if self.settled:
            return
        self.settled = True
        if error is not None:
            self.fail(error)
        settling = self.settling
        if settling.answer is not None:
            settling.unsettled -= 1
            if settling.unsettled == 0:
                answer, settling.answer = settling.answer, None  # a circle, otherwise
                answer()


Part = TypeVar("Part", bound=SettlingPart, covariant=True)


class Settling(Generic[Part]):
    __slots__ = ("answer", "bucket", "parts", "unsettled")

    late = "not all replicas in sync have it yet"
    """The message of what is not settled in time."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.unsettled = 0
        """How many of them wait; counted while there is an `answer` to give."""
        self.answer: Callable[[], None] | None = None
        self.bucket: int | None = None
        """Of its deadline (`DelayedOperations`); None while it does not wait."""

    def begin(self, answer: Callable[[], None]) -> bool:
        """Return whether parts are unsettled; `answer` is called once all are settled."""
        for part in self.parts:
            if not part.settled:
                self.unsettled += 1
        if self.unsettled:
            self.answer = answer
        return self.unsettled > 0

    def expire(self) -> None:
        """Settle the unsettled parts with REQUEST_TIMED_OUT."""
        error = KafkaError(ErrorCode.request_timed_out, self.late)
        late = [part for part in self.parts if not part.settled]
        for part in late:
            part.settle(error)
        for part in late:
            if part.replica is not None:
                part.replica.progress.drop_settled_appends()

    def recheck(self) -> None:
        """Do nothing: no operation wakes it, and its parts answer it."""
