"""TLS on one connection, apart from its socket: bytes of the wire in and out, plain bytes in and out.

Order for the caller: `handshake` until it returns True, `feed` with the received bytes in between; then
`feed` and `read_into`, `encrypt`. After each of these send the bytes of `take`, even after a failure: they
hold the alert for the other side. `handshake` costs milliseconds and may run on another thread, while nothing
else is called.

OpenSSL reads all of its input before it returns. A record costs microseconds to decrypt, one that asks
for new keys (KeyUpdate) 40, and 32 KiB may be 1,200 of them, none of which carries data. So behind the
handshake OpenSSL is given `RECORDS_AT_ONCE` at a time, and `read_into` looks at the clock between them.
"""

import contextlib
import ssl
from math import inf
from time import perf_counter
from typing import Any, Final, NamedTuple

SLICE_BYTES: Final = 32 << 10
"""Bytes of one pass. OpenSSL's buffers keep their largest size, on every connection."""


RECORDS_AT_ONCE: Final = 32
"""More than ever arrive at once of full records, of up to 16 KiB."""
_RECORD_HEADER_BYTES: Final = 5
"""The last two are the length of the rest of the record."""


class ClientTls(NamedTuple):
    """TLS of a client's connections."""

    context: ssl.SSLContext
    server_name: str | None = None
    """Host name that the server's certificate must have; None: the host in the address."""


class TlsStream:
    __slots__ = ("_header", "_incoming", "_outgoing", "_record_left", "_tls", "_unfed", "ended")

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._record_left = 0
        """Bytes of the last record begun that are still to come,"""
        self._header = b""
        """and the part of the next one's header that has come."""
        self._unfed = memoryview(b"")
        """Received bytes not yet given to OpenSSL, which gets a limited number of records at a time."""
        self.ended = False
        """Whether the other side has sent its close alert."""

    def handshake(self) -> bool:
        """Continue it as far as the received bytes allow; return whether it is complete.

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
        """The other side's certificate in DER; None if there is none, or it was not checked."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str | None:
        """`TLSv1.2` or `TLSv1.3`, once negotiated."""
        return self._tls.version()

    def feed(self, received: "bytes | memoryview") -> None:
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
        """Return the position behind `RECORDS_AT_ONCE` records, or the end."""
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
        """Whether some fed bytes may be unread; bytes behind the end do not count."""
        return not self.ended and (
            len(self._unfed) > 0 or self._tls.pending() > 0 or self._incoming.pending > 0
        )

    def read_into(self, room: memoryview, until_s: float = inf) -> int:
        """Decrypt into `room` until it is full or no bytes are left; return the length.

        It stops when the performance counter reaches `until_s`.

        Raises:
            ssl.SSLError: the other side violates the protocol.
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
        """Encrypt `plain`, of at most `SLICE_BYTES`, for `take`."""
        self._tls.write(plain)

    @property
    def has_output(self) -> bool:
        return self._outgoing.pending > 0

    def take(self) -> bytes:
        return self._outgoing.read()

    def end(self) -> None:
        """Add the close alert to the bytes of `take`."""
        with contextlib.suppress(ssl.SSLError, ValueError):  # the other side's close alert is not awaited
            self._tls.unwrap()
