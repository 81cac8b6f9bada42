"""Requests that are answered when all of their parts are settled, and at the latest when their time is up.

Parts are settled by the high watermark, by followers or by a coordinator. A part that is not settled in time
is REQUEST_TIMED_OUT, and may yet be done.

Order for the caller: enter all parts, and have them settled by others; then `until_settled`, once.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.node.serving.requests import Deferred
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
        self.settling.part_settled()


Part = TypeVar("Part", bound=SettlingPart, covariant=True)


class Settling(Generic[Part]):
    __slots__ = ("_answer", "_deferred", "_delayed", "_unsettled_count", "bucket", "parts")

    late = "not all replicas in sync have it yet"
    """The message of what is not settled in time."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.bucket: int | None = None
        """Bucket of its deadline (`DelayedOperations`); None while it does not wait."""
        self._unsettled_count = 0
        self._delayed: DelayedOperations | None = None
        """This, what is answered and the way there are set while it waits: they refer to the request."""
        self._deferred: Deferred | None = None
        self._answer: Callable[[], Any] | None = None

    def until_settled(
        self, delayed: DelayedOperations, deadline_ms: int, answer: Callable[[], Any] = lambda: None
    ) -> Deferred:
        """Return the `answer` to come when all parts are settled, at the latest at `deadline_ms`.

        When the client disconnects, the parts are settled all the same.
        """
        deferred = Deferred()
        for part in self.parts:
            if not part.settled:
                self._unsettled_count += 1
        if self._unsettled_count:
            self._delayed, self._deferred, self._answer = delayed, deferred, answer
            self.bucket = delayed.add(self, deadline_ms)
        else:
            deferred.complete(answer())
        return deferred

    def part_settled(self) -> None:
        """Give the answer if it waits for no other part."""
        deferred, answer = self._deferred, self._answer
        if deferred is None or answer is None:
            return
        self._unsettled_count -= 1
        if self._unsettled_count:
            return
        self.stop_waiting()
        if deferred.abandoned:
            self.parts.clear()  # they hold it and their replicas, and so the files of a deleted log
            return
        try:
            response = answer()
        except Exception as error:  # of the request; the high watermark that moved has nothing to do with it
            response = _raised(error)
        deferred.complete(response)

    def stop_waiting(self) -> None:
        """Give no answer any more."""
        if self._delayed is not None and self.bucket is not None:
            self._delayed.discard(self, self.bucket)
        self.bucket = self._delayed = self._deferred = self._answer = None

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


async def _raised(error: Exception) -> Any:
    raise error
