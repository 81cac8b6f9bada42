"""TLS on one connection, apart from its socket: bytes of the wire in and out, plain bytes in and out.

Order for the caller: `handshake` until it returns True, `feed` with what came in between; then `feed` and
`read_into`, `encrypt`. After each of these `take` what is to be sent, even after one that fails: the other
side is told why. `handshake` costs milliseconds and may run on another thread, while nothing else is called.

OpenSSL reads whatever it is given before it comes back. A record costs microseconds to decrypt, one that asks
for new keys (KeyUpdate) 40, and 32 KiB may be 1,200 of them, none of which brings anything. So behind the
handshake OpenSSL is given `RECORDS_AT_ONCE` at a time, and `read_into` looks at the clock between them.
"""

import contextlib
import ssl
from math import inf
from time import perf_counter
from typing import Any, Final, NamedTuple

SLICE_BYTES: Final = 32 << 10
"""How much goes through at a time. OpenSSL's buffers stay as large as they were once, on every connection."""


RECORDS_AT_ONCE: Final = 32
"""Many of the usual ones, of up to 16 KiB, are never there at once."""
_RECORD_HEADER_BYTES: Final = 5
"""The last two say how long the rest of the record is."""


class ClientTls(NamedTuple):
    """How a client's connections are encrypted."""

    context: ssl.SSLContext
    server_name: str | None = None
    """Whom the other side has to be; None: the host that is connected to."""


class TlsStream:
    """One end of a connection."""

    __slots__ = ("_header", "_incoming", "_outgoing", "_record_left", "_tls", "_unfed", "ended")

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._record_left = 0
        """How much of the record that was begun last is still to come,"""
        self._header = b""
        """and what is there of the next one's header."""
        self._unfed = memoryview(b"")
        """What came and was not given to OpenSSL: it is of too many records."""
        self.ended = False
        """Whether the other side has said that nothing follows."""

    def handshake(self) -> bool:
        """Go on with it as far as what came allows; return whether it is complete.

        Raises:
            ssl.SSLError: it has failed.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not self._unfed:
                    return False
                self._feed_on()
            else:
                return True

    @property
    def peer_certificate(self) -> bytes | None:
        """What the other side has shown of itself, as DER; None if nothing, or nothing that was checked."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str | None:
        """`TLSv1.2` or `TLSv1.3`, once that is agreed."""
        return self._tls.version()

    def feed(self, received: "bytes | memoryview") -> None:
        """Take in what came over the wire."""
        if self._unfed:
            self._unfed = memoryview(bytes(self._unfed) + received)
            return
        end = self._end_of_records(received)
        self._incoming.write(received if end == len(received) else received[:end])
        if end < len(received):
            self._unfed = memoryview(bytes(received[end:]))

    def _feed_on(self) -> None:
        unfed = self._unfed
        end = self._end_of_records(unfed)
        self._incoming.write(unfed[:end])
        self._unfed = unfed[end:]

    def _end_of_records(self, received: "bytes | memoryview") -> int:
        """Return the position behind so many records as are given to OpenSSL at once, or of the end."""
        position, size, left = 0, len(received), self._record_left
        for _ in range(RECORDS_AT_ONCE):
            if left > size - position:
                break
            position += left
            header = self._header + bytes(
                received[position : position + _RECORD_HEADER_BYTES - len(self._header)]
            )
            position += len(header) - len(self._header)
            if len(header) < _RECORD_HEADER_BYTES:
                self._header, left = header, 0
                break
            self._header, left = b"", header[3] << 8 | header[4]
        taken = min(left, size - position)
        self._record_left = left - taken
        return position + taken

    @property
    def has_more(self) -> bool:
        """Whether some of what was fed may not have been read yet; what follows the end is nobody's."""
        return not self.ended and (
            len(self._unfed) > 0 or self._tls.pending() > 0 or self._incoming.pending > 0
        )

    def read_into(self, room: memoryview, until_s: float = inf) -> int:
        """Decrypt into `room` as much as there is of both; return how much.

        When the performance counter says `until_s`, what is left is left for another time.

        Raises:
            ssl.SSLError: the other side does not keep to the protocol.
        """
        count = 0
        if self._unfed and not self._incoming.pending:
            self._feed_on()  # however late it is: the next call begins here again
        while True:
            try:
                while count < len(room):
                    buffer: Any = room[count:]
                    part: int = self._tls.read(len(buffer), buffer)  # type: ignore[assignment]
                    if not part:
                        self.ended = True
                        return count
                    count += part
                return count
            except ssl.SSLWantReadError:
                if not self._unfed or perf_counter() >= until_s:
                    return count
            except ssl.SSLZeroReturnError:
                self.ended = True
                return count
            self._feed_on()

    def encrypt(self, plain: memoryview) -> None:
        """Make of `plain`, of at most `SLICE_BYTES`, what is to be sent."""
        self._tls.write(plain)

    @property
    def has_output(self) -> bool:
        """Whether there is something to send."""
        return self._outgoing.pending > 0

    def take(self) -> bytes:
        """Return what is to be sent."""
        return self._outgoing.read()

    def end(self) -> None:
        """Say that nothing follows; `take` it."""
        with contextlib.suppress(ssl.SSLError, ValueError):  # nobody waits for the other side to say the same
            self._tls.unwrap()
