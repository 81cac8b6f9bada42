"""TLS on one connection, apart from its socket: bytes of the wire in and out, plain bytes in and out.

Order for the caller: `handshake` until it returns True, `feed` with what came in between; then `feed` and
`read_into`, `encrypt`. After each of these `take` what is to be sent, even after one that fails: the other
side is told why. `handshake` costs milliseconds and may run on another thread, while nothing else is called.
"""

import contextlib
import ssl
from typing import Any, Final, NamedTuple

__all__ = ["SLICE_BYTES", "ClientTls", "TlsStream"]

SLICE_BYTES: Final = 32 << 10
"""How much goes through at a time. OpenSSL's buffers stay as large as they were once, on every connection."""


class ClientTls(NamedTuple):
    """How a client's connections are encrypted."""

    context: ssl.SSLContext
    server_name: str | None = None
    """Whom the other side has to be; None: the host that is connected to."""


class TlsStream:
    """One end of a connection."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ended")

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self.ended = False
        """Whether the other side has said that nothing follows."""

    def handshake(self) -> bool:
        """Go on with it as far as what came allows; return whether it is complete.

        Raises:
            ssl.SSLError: it has failed.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
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
        self._incoming.write(received)

    @property
    def has_more(self) -> bool:
        """Whether some of what was fed may not have been read yet; what follows the end is nobody's."""
        return not self.ended and (self._tls.pending() > 0 or self._incoming.pending > 0)

    def read_into(self, room: memoryview) -> int:
        """Decrypt into `room` as much as there is of both; return how much.

        Raises:
            ssl.SSLError: the other side does not keep to the protocol.
        """
        count = 0
        try:
            while count < len(room):
                buffer: Any = room[count:]
                part: int = self._tls.read(len(buffer), buffer)  # type: ignore[assignment]
                if not part:
                    self.ended = True
                    break
                count += part
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return count

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
