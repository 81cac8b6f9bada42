"""The TLS handshakes of one listener: its certificate, and the bound on handshakes under way.

A step of a handshake, a signature mostly, costs up to milliseconds; threads beside the loop take them. While
one is taken nothing is read from its connection. At most `MAX_HANDSHAKES` are under way: with one more, the
oldest is given up, which is probably an abandoned one. Each has `HANDSHAKE_TIMEOUT_S`.

Belongs to one event loop. Order for the caller: `begin` and `end` for each connection, `step` between them;
`close`.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from sparklog.node.acls.acl import Principal
from sparklog.node.serving.tls.tls_stream import SLICE_BYTES, TlsStream

HANDSHAKE_TIMEOUT_S: Final = 10.0
MAX_HANDSHAKES: Final = 1_000
_THREADS: Final = 2


class ServerTls:
    """Certificate, client authentication and principal rules of a listener; immutable."""

    __slots__ = ("context", "principal_of")

    def __init__(self, context: ssl.SSLContext, principal_of: Callable[[bytes], Principal]) -> None:
        self.context = context
        self.principal_of = principal_of
        """The principal of a certificate in DER; raises NoMatchingRuleError (sparklog.node.security.tls)."""


class HandshakingConnection(Protocol):
    """The part of a connection that handshakes use."""

    def give_up_handshake(self, why: str) -> None:
        """Close, because the handshake takes too long, or too many are under way."""


class TlsHandshakes:
    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ServerTls) -> None:
        self.tls = tls
        """For new connections; may be replaced."""
        self.received = bytearray(SLICE_BYTES)
        """Receives bytes of the wire, before they are fed; nothing stays in it."""
        self.plain = bytearray(SLICE_BYTES)
        """Slices are gathered here before they are encrypted; nothing stays in it."""
        self.failed_count = self.completed_count = 0
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tls-handshake")
        self._under_way: dict[HandshakingConnection, asyncio.TimerHandle] = {}

    def begin(self, connection: HandshakingConnection) -> TlsStream:
        """Return the stream of a connection that begins with its handshake."""
        if len(self._under_way) >= MAX_HANDSHAKES:
            next(iter(self._under_way)).give_up_handshake(f"{MAX_HANDSHAKES} others are under way")
        why = f"not complete within {HANDSHAKE_TIMEOUT_S:.0f} s"
        self._under_way[connection] = self._loop.call_later(
            HANDSHAKE_TIMEOUT_S, connection.give_up_handshake, why
        )
        return TlsStream(self.tls.context, server_side=True)

    def step(self, stream: TlsStream, taken: Callable[[asyncio.Future[bool]], None]) -> asyncio.Future[bool]:
        """Take a step on another thread; then call `taken` on the loop with whether it was the last.

        Cancel the returned future with its connection: until a thread takes it up it would keep the
        connection in memory, and others waiting.
        """
        step = self._loop.run_in_executor(self._threads, stream.handshake)
        step.add_done_callback(taken)
        return step

    def end(self, connection: HandshakingConnection, *, completed: bool | None) -> None:
        """End the handshake; `completed` is None if it had not begun. Calling again has no effect."""
        timer = self._under_way.pop(connection, None)
        if timer is None:
            return
        timer.cancel()
        if completed:
            self.completed_count += 1
        elif completed is not None:
            self.failed_count += 1

    def close(self) -> None:
        """End the threads after their present steps; close the connections before."""
        self._threads.shutdown(wait=False, cancel_futures=True)
