"""What the connections of a broker together hold of requests that came in pieces: queued.max.request.bytes.

A request that does not arrive in one piece claims its bytes when it begins, and gives them back when it is
done with. Once they are used up, whoever has claimed nothing is not read from; whoever has goes on, or nobody
ever would. So one request more than the bound allows may be there, as in Kafka.

Order for the caller: `claim`, and if that fails nothing more until `go_on` is called; `give_back` once for
each claim.
"""

from collections import deque
from collections.abc import Callable

__all__ = ["RequestMemory"]


class RequestMemory:
    """The bytes of requests, of all listeners."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._line: deque[Callable[[], None]] = deque()

    def claim(self, size_bytes: int, go_on: Callable[[], None]) -> bool:
        """Claim the bytes of a request, if any are left, or else have `go_on` called when some are again."""
        if self._left_bytes > 0:
            self._left_bytes -= size_bytes
            return True
        self._line.append(go_on)
        return False

    def give_back(self, size_bytes: int) -> None:
        """A request is done with."""
        self._left_bytes += size_bytes
        if self._left_bytes > 0:
            # Each claims anew; who finds nothing left stands in line again.
            line, self._line = self._line, deque()
            for go_on in line:
                go_on()
