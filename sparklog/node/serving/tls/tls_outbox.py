"""The unsent bytes of one TLS connection: as `outbox`, but everything passes through memory on its way.

Bytes and file regions are gathered into slices of `SLICE_BYTES`, encrypted, and sent one after the other. The
next slice is made only when the socket has taken the one before, so that a slow reader costs a slice
and not its whole response. Plain bytes in memory are one slice a listener.

Order for the caller: as with `Outbox`.
"""

import os
import socket
from typing import Any

from sparklog.node.serving.outbox import TURN_BYTES, WINDOW_BYTES, Flushed, Outbox, RegionTruncatedError
from sparklog.node.serving.tls.tls_stream import TlsStream
from sparklog.protocol.codec.encoded import Transferable


class TlsOutbox(Outbox):
    __slots__ = ("_plain", "_stream", "_unsent")

    def __init__(self, connected: socket.socket, stream: TlsStream, plain: bytearray) -> None:
        """Send the output of `stream`; connections share `plain`, in which slices are gathered."""
        super().__init__(connected)
        self._stream = stream
        self._plain = memoryview(plain)
        self._unsent = memoryview(b"")
        """Encrypted and not sent."""

    def __bool__(self) -> bool:
        return bool(self._chunks) or len(self._unsent) > 0 or self._stream.has_output

    def flush(self) -> Flushed:
        budget = TURN_BYTES
        stream = self._stream
        try:
            while True:
                if not self._unsent:
                    if not stream.has_output:
                        if not self._chunks:
                            return Flushed.EMPTY
                        if budget <= 0:
                            return Flushed.YIELD
                        filled = self._fill()
                        if not filled and self._chunks:
                            return Flushed.COLD
                        stream.encrypt(self._plain[:filled])
                    self._unsent = memoryview(stream.take())
                sent = self._socket.send(self._unsent)
                self._unsent = self._unsent[sent:]
                budget -= sent
        except BlockingIOError:
            return Flushed.BLOCKED

    def clear(self) -> None:
        super().clear()
        self._unsent = memoryview(b"")

    def _fill(self) -> int:
        """Gather the next slice; return its length, 0 where the next part is not in the page cache."""
        plain, chunks, filled = self._plain, self._chunks, 0
        while chunks and filled < len(plain):
            head = chunks[0]
            if type(head) is bytes or type(head) is memoryview:
                count = min(len(head), len(plain) - filled)
                plain[filled : filled + count] = head[:count]
                self.pending_memory_bytes -= count
                if count == len(head):
                    chunks.popleft()
                else:
                    chunks[0] = memoryview(head)[count:]
            else:
                count = self._read_region(head, plain[filled:])
                if not count and chunks and chunks[0] is head:
                    break
            filled += count
        return filled

    def _read_region(self, region: Transferable, room: memoryview) -> int:
        """Read the next part of the region at the head; 0 where that is not in the page cache."""
        done = self._region_sent_bytes
        remaining = region.length - done
        count = 0
        if remaining:
            if done >= self._warm_until:
                window = min(remaining, WINDOW_BYTES)
                if not region.is_cached(done, window):
                    return 0
                self._warm_until = done + window
            room = room[: min(remaining, self._warm_until - done)]
            buffers: list[Any] = [room]
            count = os.preadv(region.fileno(), buffers, region.position + done)
            if count == 0:
                raise RegionTruncatedError(f"{region!r} ends {remaining} bytes early")
        self._region_sent(region, done + count)
        return count
