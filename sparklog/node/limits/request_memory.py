"""Memory of incomplete requests of all of a broker's connections: queued.max.request.bytes.

A request that does not arrive in one piece claims its bytes when it begins, and gives them back when it is
answered. Once they are used up, a connection without a claim is not read from; one with a claim goes on, or
none ever would. So the bound may be exceeded by one request, as in Kafka.

Order for the caller: `claim`, and if that fails nothing more until `may_go_on` is called, or `give_up`;
`give_back` once for each claim.
"""

from collections.abc import Callable
from typing import Protocol


class _Claimant(Protocol):
    """The part of a connection that claims use."""

    hold_count: int

    def refuse(self, reason: str, what: str) -> None: ...


class RequestMemory:
    """The bytes of requests, of all listeners."""

    def __init__(self, limit_bytes: int, *, makes_room: bool = False) -> None:
        """Share out `limit_bytes`.

        With `makes_room` the connection with the oldest claim of an incomplete request is closed when another
        needs memory. This is for unauthenticated connections: they could announce requests that they never
        send, and block every other login.
        """
        self._left_bytes = limit_bytes
        self._makes_room = makes_room
        self._holders: dict[MemoryClaim, None] = {}
        self._line: dict[MemoryClaim, None] = {}

    def claim(self, claim: "MemoryClaim", size_bytes: int) -> bool:
        """Claim bytes if any are left; otherwise call `claim.may_go_on` when there are some."""
        if self._makes_room and self._left_bytes <= 0 and not claim.has_waited:
            self._make_room()
        if self._left_bytes > 0:
            self._left_bytes -= size_bytes
            self._holders[claim] = None
            return True
        self._line[claim] = None
        return False

    def give_up(self, claim: "MemoryClaim") -> None:
        """Stop waiting; a no-op for a claim that does not wait."""
        self._line.pop(claim, None)

    def give_back(self, claim: "MemoryClaim", size_bytes: int) -> None:
        del self._holders[claim]
        self._left_bytes += size_bytes
        if self._left_bytes > 0:
            # Each claims again, and waits in line again if nothing is left.
            line, self._line = self._line, {}
            for waiting in line:
                waiting.may_go_on()

    def _make_room(self) -> None:
        for claim in self._holders:  # the oldest first
            if claim.makes_way():
                return


class MemoryClaim:
    __slots__ = ("_connection", "_go_on", "_memory", "has_waited", "size_bytes", "waits")

    def __init__(self, connection: _Claimant) -> None:
        self._connection: _Claimant | None = connection
        """None once that is closed: they refer to each other until then."""
        self.size_bytes = 0
        """0 if nothing is claimed."""
        self.has_waited = False
        """Whether no memory was left when it was made first."""
        self.waits = False
        self._memory: RequestMemory | None = None
        self._go_on: Callable[[], None] | None = None

    def make(self, memory: RequestMemory, size_bytes: int, go_on: Callable[[], None]) -> None:
        """Claim the bytes of a request, or wait for memory and then call `go_on`."""
        self._memory = memory
        if memory.claim(self, size_bytes):
            self.size_bytes = size_bytes
            self.has_waited = False
        else:
            self._go_on = go_on
            self.waits = self.has_waited = True

    def give_back(self) -> None:
        if self.size_bytes and self._memory is not None:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self._memory.give_back(self, size_bytes)

    def close(self) -> None:
        """Give up the claim, or the wait for one: the connection is closed."""
        self.give_back()
        if self._memory is not None:
            self._memory.give_up(self)
        self._go_on = self._connection = None
        self.waits = False

    def may_go_on(self) -> None:
        """Claim again: memory was given back."""
        go_on, self._go_on = self._go_on, None
        self.waits = False
        if go_on is not None:
            go_on()

    def makes_way(self) -> bool:
        """Close the connection unless its request is complete and handled; return whether it was closed."""
        connection = self._connection
        if connection is None or connection.hold_count:
            return False
        connection.refuse("memory", "others need the memory of its incomplete request")
        return True
