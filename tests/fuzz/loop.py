"""An event loop without a kernel: production's connections run on it as they are, one input after the other.

Its clock moves when nothing is left to do but to wait. What production hands to threads is done at once. Its
sockets give what the input says, in the pieces that it says, and take whatever is sent.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from tests.fuzz.finding import Finding

_MAX_TURNS = 20_000
"""An input that keeps the loop busy for longer does not end."""


class Loop(asyncio.BaseEventLoop):
    """See the module; only one is running."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._now_s = 1000.0
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))
        asyncio._set_running_loop(self)

    def time(self) -> float:
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        if timeout_s:
            self._now_s += timeout_s
        return []

    def _process_events(self, events: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> bool:
        return self.readers.pop(descriptor, None) is not None

    def add_writer(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.writers[descriptor] = callback

    def remove_writer(self, descriptor: int) -> bool:
        return self.writers.pop(descriptor, None) is not None

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def run_until_idle(self, within_s: float) -> None:
        """Do what there is to do, and what is to be done within a time."""
        until_s = self._now_s + within_s
        for _ in range(_MAX_TURNS):
            scheduled = self._scheduled
            while scheduled and scheduled[0]._cancelled:
                # As asyncio does, but before it is decided whether something is left.
                import heapq

                self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
                heapq.heappop(scheduled)._scheduled = False
            if not self._ready and (not scheduled or scheduled[0]._when > until_s):
                break
            self._run_once()
        else:
            raise Finding(f"the loop is busy after {_MAX_TURNS} turns")
        self._now_s = max(self._now_s, until_s)
        if self.failures:
            failures, self.failures = self.failures, []
            context = failures[0]
            raise Finding(f"the loop was told of {context}") from context.get("exception")


class Socket:
    """One end of a connection, whose other end is an input."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._incoming = bytearray()
        self.sent = bytearray()
        self.closed = False
        self.ended = False
        """Whether nothing more comes."""

    def come(self, data: bytes) -> None:
        """Have it received."""
        self._incoming += data

    @property
    def has_more(self) -> bool:
        """Whether there is something to receive."""
        return bool(self._incoming)

    def fileno(self) -> int:
        return self._descriptor

    def recv_into(self, room: Any) -> int:
        if not self._incoming:
            if self.ended:
                return 0
            raise BlockingIOError
        count = min(len(room), len(self._incoming))
        room[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        if self.closed:
            raise OSError("closed")
        self.sent += data
        return len(data)

    def sendmsg(self, chunks: Any, ancillary: Any = (), flags: int = 0) -> int:
        return sum(self.send(chunk) for chunk in chunks)

    def setsockopt(self, *arguments: Any) -> None: ...

    def close(self) -> None:
        self.closed = True

    def as_socket(self) -> socket.socket:
        return self  # type: ignore[return-value]
