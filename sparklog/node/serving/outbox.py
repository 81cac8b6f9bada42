"""Bytes and file regions on their way out of a non-blocking socket, in order.

Runs of bytes leave in one gathering write, with MSG_MORE when a file region follows so that no short segment
goes out between the two; regions leave by sendfile and are never read into Python, except small ones behind
bytes: these are read and leave with what is around them, in two system calls instead of four, and wake the
other side once. The rest of a partial write stays here, and `flush` goes on from there.

Order for the caller: `append`, then `flush`; on BLOCKED wait until the socket is writable and flush again;
on COLD run `warm` on another thread and flush again; on YIELD flush again on the loop's next turn, so
that one reader of a long region does not keep the others waiting.
"""

import os
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from sparklog.protocol.codec.encoded import Transferable
from sparklog.protocol.codec.encoder import Chunk

_MAX_GATHERED_CHUNKS: Final = 64
_READ_BELOW_BYTES: Final = 8 << 10
"""The size of regions up to which copying is cheaper than two more system calls."""
WINDOW_BYTES: Final = 1 << 20
"""How much of a region is sent, and looked for in the page cache, at a time."""
TURN_BYTES: Final = 4 << 20
"""How much one connection may write before others have their turn."""


class Flushed(Enum):
    EMPTY = "everything is with the kernel"
    BLOCKED = "the socket takes no more for now"
    YIELD = "enough for one turn"
    COLD = "the next part of a file is not in the page cache"


class RegionTruncatedError(Exception):
    """A file lost bytes that a response had already promised; the connection cannot go on."""


class Outbox:
    __slots__ = ("_chunks", "_region_sent_bytes", "_socket", "_warm_until", "pending_memory_bytes")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._chunks: deque[Any] = deque()
        self._region_sent_bytes = 0
        self._warm_until = -1
        """Position in the region at the head up to which the page cache need not be asked."""
        self.pending_memory_bytes = 0
        """Bytes waiting here that occupy memory; file regions do not."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append(self, chunks: list[Chunk]) -> None:
        """Queue the chunks of a frame; none of those in memory may be empty."""
        for chunk in chunks:
            if type(chunk) is bytes or type(chunk) is memoryview:
                self.pending_memory_bytes += len(chunk)
        self._chunks.extend(chunks)

    def flush(self) -> Flushed:
        """Write as much as possible without waiting.

        Raises:
            OSError: the connection is broken.
            RegionTruncatedError: the file of a region is shorter than it was.
        """
        budget = TURN_BYTES
        chunks = self._chunks
        try:
            while chunks:
                if budget <= 0:
                    return Flushed.YIELD
                head = chunks[0]
                if type(head) is bytes or type(head) is memoryview:
                    budget -= self._write_bytes()
                    continue
                sent = self._write_region(head)
                if sent < 0:
                    return Flushed.COLD
                budget -= sent
        except BlockingIOError:
            return Flushed.BLOCKED
        return Flushed.EMPTY

    def warm(self) -> Callable[[], None]:
        """Return a function, for any thread, that reads the cold part at the head into the page cache."""
        region: Transferable = self._chunks[0]
        start = region.position + self._region_sent_bytes
        length = min(WINDOW_BYTES, region.length - self._region_sent_bytes)
        self._warm_until = self._region_sent_bytes + length

        def read() -> None:
            os.pread(region.fileno(), length, start)

        return read

    def clear(self) -> None:
        """Drop everything, which closes the files."""
        self._chunks.clear()
        self.pending_memory_bytes = 0

    def _write_bytes(self) -> int:
        chunks = self._chunks
        gathered: list[bytes | memoryview] = []
        flags = 0
        for index, chunk in enumerate(chunks):
            if len(gathered) == _MAX_GATHERED_CHUNKS:
                break
            if type(chunk) is bytes or type(chunk) is memoryview:
                gathered.append(chunk)
                continue
            content = self._read_small(chunk)
            if content is None:
                flags = socket.MSG_MORE
                break
            chunks[index] = content
            gathered.append(content)
        if len(gathered) == 1:
            sent = self._socket.send(gathered[0], flags)
        else:
            sent = self._socket.sendmsg(gathered, (), flags)
        self.pending_memory_bytes -= sent
        left = sent
        while left:
            size = len(chunks[0])
            if left < size:
                chunks[0] = memoryview(chunks[0])[left:]
                break
            left -= size
            chunks.popleft()
        return sent

    def _read_small(self, region: Transferable) -> memoryview | None:
        """Return the content of a small region that is in the page cache; None if it is not, or is large."""
        if not 0 < region.length <= _READ_BELOW_BYTES:
            return None
        content = bytearray(region.length)
        try:
            count = os.preadv(region.fileno(), (content,), region.position, os.RWF_NOWAIT)
        except OSError:
            return None  # `_write_region` finds out what is the matter
        if count != region.length:
            return None
        self.pending_memory_bytes += count
        return memoryview(content)

    def _write_region(self, region: Transferable) -> int:
        """Return the number of bytes sent, or -1 if the region is not in the page cache."""
        done = self._region_sent_bytes
        remaining = region.length - done
        if remaining:
            count = min(remaining, WINDOW_BYTES)
            descriptor = region.fileno()
            position = region.position + done
            if done >= self._warm_until:
                if not region.is_cached(done, count):
                    return -1
                self._warm_until = done + count
            sent = os.sendfile(self._socket.fileno(), descriptor, position, count)
            if sent == 0:
                raise RegionTruncatedError(f"{region!r} ends {remaining} bytes early")
        else:
            sent = 0
        self._region_sent(region, done + sent)
        return sent

    def _region_sent(self, region: Transferable, done: int) -> None:
        if done == region.length:
            self._chunks.popleft()
            self._region_sent_bytes = 0
            self._warm_until = -1
        else:
            self._region_sent_bytes = done
