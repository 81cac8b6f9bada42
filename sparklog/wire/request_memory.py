"""What the connections of a broker together hold of requests that came in pieces: queued.max.request.bytes.

A request that does not arrive in one piece claims its bytes when it begins, and gives them back when it is
done with. Once they are used up, whoever has claimed nothing is not read from; whoever has goes on, or nobody
ever would. So one request more than the bound allows may be there, as in Kafka.

Order for the caller: `claim`, and if that fails nothing more until `go_on` is called, or `give_up`;
`give_back` once for each claim.
"""

from collections.abc import Callable

__all__ = ["MemoryClaim", "RequestMemory"]


class RequestMemory:
    """The bytes of requests, of all listeners."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._line: dict[Callable[[], None], None] = {}

    def claim(self, size_bytes: int, go_on: Callable[[], None]) -> bool:
        """Claim the bytes of a request, if any are left, or else have `go_on` called when some are again."""
        if self._left_bytes > 0:
            self._left_bytes -= size_bytes
            return True
        self._line[go_on] = None
        return False

    def give_up(self, go_on: Callable[[], None]) -> None:
        """Wait no more; who does not has no effect."""
        self._line.pop(go_on, None)

    def give_back(self, size_bytes: int) -> None:
        """A request is done with."""
        self._left_bytes += size_bytes
        if self._left_bytes > 0:
            # Each claims anew; who finds nothing left stands in line again.
            line, self._line = self._line, {}
            for go_on in line:
                go_on()


class MemoryClaim:
    """What one connection has claimed, for one request at a time."""

    __slots__ = ("_go_on", "_memory", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        """So much; 0 if nothing."""
        self._memory: RequestMemory | None = None
        self._go_on: Callable[[], None] | None = None

    @property
    def waits(self) -> bool:
        """Whether there was nothing left."""
        return self._go_on is not None

    def make(self, memory: RequestMemory, size_bytes: int, go_on: Callable[[], None]) -> None:
        """Claim the bytes of a request, or wait until there are some, and have `go_on` called."""
        self._memory = memory
        if memory.claim(size_bytes, self._may_go_on):
            self.size_bytes = size_bytes
        else:
            self._go_on = go_on

    def give_back(self) -> None:
        """The request is done with."""
        if self.size_bytes and self._memory is not None:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self._memory.give_back(size_bytes)

    def close(self) -> None:
        """The connection is: nothing is claimed or waited for any more."""
        self.give_back()
        if self._memory is not None:
            self._memory.give_up(self._may_go_on)
        self._go_on = None

    def _may_go_on(self) -> None:
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()
