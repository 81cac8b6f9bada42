"""What the connections of a broker together hold of requests that came in pieces: queued.max.request.bytes.

A request that does not arrive in one piece claims its bytes when it begins, and gives them back when it is
done with. Once they are used up, whoever has claimed nothing is not read from; whoever has goes on, or nobody
ever would. So one request more than the bound allows may be there, as in Kafka.

Order for the caller: `claim`, and if that fails nothing more until `may_go_on` is called, or `give_up`;
`give_back` once for each claim.
"""

from collections.abc import Callable
from typing import Protocol


class _Claimant(Protocol):
    """What is needed of a connection."""

    holds: int

    def refuse(self, reason: str, what: str) -> None:
        """Close it."""


class RequestMemory:
    """The bytes of requests, of all listeners."""

    def __init__(self, limit_bytes: int, *, makes_room: bool = False) -> None:
        """Share out so many bytes.

        With `makes_room` whoever has claimed some longest, and not sent all, goes when another needs some.
        That is for those who have not said who they are: they could announce what they never send, and keep
        everybody else from saying it.
        """
        self._left_bytes = limit_bytes
        self._makes_room = makes_room
        self._holders: dict[MemoryClaim, None] = {}
        self._line: dict[MemoryClaim, None] = {}

    def claim(self, claim: "MemoryClaim", size_bytes: int) -> bool:
        """Claim the bytes of a request, if any are left, or else have `claim` told when some are again."""
        if self._makes_room and self._left_bytes <= 0 and not claim.has_waited:
            self._make_room()
        if self._left_bytes > 0:
            self._left_bytes -= size_bytes
            self._holders[claim] = None
            return True
        self._line[claim] = None
        return False

    def give_up(self, claim: "MemoryClaim") -> None:
        """Wait no more; who does not has no effect."""
        self._line.pop(claim, None)

    def give_back(self, claim: "MemoryClaim", size_bytes: int) -> None:
        """A request is done with."""
        del self._holders[claim]
        self._left_bytes += size_bytes
        if self._left_bytes > 0:
            # Each claims anew; who finds nothing left stands in line again.
            line, self._line = self._line, {}
            for waiting in line:
                waiting.may_go_on()

    def _make_room(self) -> None:
        for claim in self._holders:  # the oldest first
            if claim.makes_way():
                return


class MemoryClaim:
    """What one connection has claimed, for one request at a time."""

    __slots__ = ("_connection", "_go_on", "_memory", "has_waited", "size_bytes")

    def __init__(self, connection: _Claimant) -> None:
        self._connection: _Claimant | None = connection
        """None once that is closed: they refer to each other until then."""
        self.size_bytes = 0
        """So much; 0 if nothing."""
        self.has_waited = False
        """Whether there was nothing left when it was made first."""
        self._memory: RequestMemory | None = None
        self._go_on: Callable[[], None] | None = None

    @property
    def waits(self) -> bool:
        """Whether there was nothing left."""
        return self._go_on is not None

    def make(self, memory: RequestMemory, size_bytes: int, go_on: Callable[[], None]) -> None:
        """Claim the bytes of a request, or wait until there are some, and have `go_on` called."""
        self._memory = memory
        if memory.claim(self, size_bytes):
            self.size_bytes = size_bytes
            self.has_waited = False
        else:
            self._go_on = go_on
            self.has_waited = True

    def give_back(self) -> None:
        """The request is done with."""
        if self.size_bytes and self._memory is not None:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self._memory.give_back(self, size_bytes)

    def close(self) -> None:
        """The connection is: nothing is claimed or waited for any more."""
        self.give_back()
        if self._memory is not None:
            self._memory.give_up(self)
        self._go_on = self._connection = None

    def may_go_on(self) -> None:
        """There is some again."""
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()

    def makes_way(self) -> bool:
        """Close the connection, unless all of its request is there and is being worked at; return whether."""
        connection = self._connection
        if connection is None or connection.holds:
            return False
        connection.refuse("memory", "others need the memory for what it has announced and not sent")
        return True
