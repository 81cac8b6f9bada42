"""Receive buffers that grow with what was received, never with what a frame claims.

A connection has no buffer of its own while it is idle or holds only the start of a small frame: it takes one
from the pool when there is something to read and gives it back when every whole frame has been handled. So
the memory of many quiet connections is next to nothing, and a large frame doubles its buffer each time it
has filled it, which copies each byte about once.
"""

from typing import Final

INITIAL_BUFFER_BYTES: Final = 512 << 10
"""Room for the five batches of 64 KiB that a producer has in flight, or a follower fetches at once.

Four of them with their frames are more than 256 KiB: the fourth would come in two parts.
"""
_MAX_POOLED_BUFFER_BYTES: Final = 4 << 20
_MAX_POOL_BYTES: Final = 16 << 20
KEEP_SMALL_BYTES: Final = 16 << 10
"""The start of a frame up to this size is copied out, so that its buffer can go back to the pool."""


class BufferPool:
    """Buffers shared by the connections of one loop."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._free_bytes = 0

    def take(self) -> bytearray:
        """Return a buffer of at least `INITIAL_BUFFER_BYTES`, the last one used first."""
        if not self._free:
            return bytearray(INITIAL_BUFFER_BYTES)
        buffer = self._free.pop()
        self._free_bytes -= len(buffer)
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer; it is dropped if it is too large to keep or there are enough."""
        size = len(buffer)
        if size <= _MAX_POOLED_BUFFER_BYTES and self._free_bytes + size <= _MAX_POOL_BYTES:
            self._free.append(buffer)
            self._free_bytes += size


class ReceiveBuffer:
    """The bytes received by one connection and not yet taken: `view[start:end]`, read-only in `readable`."""

    __slots__ = ("_buffer", "_kept", "_pool", "_view", "end", "readable", "start")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._buffer: bytearray | None = None
        self._kept = b""
        self._view = memoryview(b"")
        self.readable = self._view
        self.start = 0
        self.end = 0

    def room(self, frame_bytes: int) -> memoryview:
        """Return where to receive into, never empty; `frame_bytes` is the size of the frame begun, or 0."""
        if self._buffer is None:
            self._attach(self._pool.take())
            kept, self._kept = self._kept, b""
            self._view[: len(kept)] = kept
        assert self._buffer is not None
        capacity = len(self._buffer)
        if self.start and (self.end == capacity or self.start + frame_bytes > capacity):
            length = self.end - self.start
            self._view[:length] = self._view[self.start : self.end]
            self.start, self.end = 0, length
        if self.end == capacity:
            larger = bytearray(2 * capacity)
            larger[: self.end] = self._view
            self._detach()
            self._attach(larger)
        return self._view[self.end :]

    def settle(self) -> None:
        """Give the buffer back if little or nothing is left in it; views of it must have been released."""
        if self._buffer is None:
            return
        length = self.end - self.start
        if length <= KEEP_SMALL_BYTES:
            self._kept = bytes(self._view[self.start : self.end])
            self.start, self.end = 0, length
            self._detach()
            self.readable = memoryview(self._kept)

    def release(self) -> None:
        self._detach()
        self._kept = b""
        self.start = self.end = 0

    def _attach(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self.readable = self._view.toreadonly()

    def _detach(self) -> None:
        if self._buffer is not None:
            self._view = self.readable = memoryview(b"")
            self._pool.give_back(self._buffer)
            self._buffer = None
