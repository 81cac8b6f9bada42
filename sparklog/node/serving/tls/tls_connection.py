"""An accepted connection with TLS: `Connection` behind a handshake, and with everything encrypted.

Rules kept, beside those of `connection`:
- Until the handshake is complete only its own bytes are read, and nothing while a step of it is
  taken on another thread (`tls_handshakes`).
- At most the room of `ReceiveBuffer` is decrypted; the rest waits encrypted, and one slice at a time is read
  from the socket. While reading is paused nothing is decrypted either.
- After a close alert the bytes received before are handled, and later ones are not received.
- A handshake that fails is counted, logged with its peer, and answered with the alert that says why. A
  client that closes before its first byte has not failed the handshake.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from time import perf_counter
from typing import Final

from sparklog.node.serving.closing_on_error import closing_on_error
from sparklog.node.serving.connection import NOTED_WORK_S, Connection, ConnectionOwner
from sparklog.node.serving.tls.tls_handshakes import TlsHandshakes
from sparklog.node.serving.tls.tls_outbox import TlsOutbox
from sparklog.node.serving.turns import SHARE_S

_SLICES_PER_TURN: Final = 8
"""At most this many slices are received in one turn."""


class TlsConnection(Connection):
    __slots__ = (
        "_handshakes",
        "_has_begun",
        "_has_handshaken",
        "_is_decrypting_later",
        "_step",
        "_stream",
        "_tls",
    )

    def __init__(
        self, owner: ConnectionOwner, connected: socket.socket, peer: str, handshakes: TlsHandshakes
    ) -> None:
        super().__init__(owner, connected, peer)
        self._handshakes = handshakes
        self._tls = handshakes.tls
        self._has_begun = False
        """Whether any byte has come."""
        self._has_handshaken = False
        self._step: asyncio.Future[bool] | None = None
        """The present step of the handshake, running or waiting for a thread."""
        self._is_decrypting_later = False
        self._stream = handshakes.begin(self)
        self._outbox = TlsOutbox(connected, self._stream, handshakes.plain)

    def close(self) -> None:
        if self.closed:
            return
        self._handshakes.end(self, completed=False)
        if self._step is not None:
            self._step.cancel()
        if self._has_handshaken and not self._outbox:
            # So that the other side knows that nothing was cut off. It is not waited for, and in any
            # state of the stream the socket gets closed.
            with contextlib.suppress(Exception):
                self._stream.end()
                self._socket.send(self._stream.take())
        super().close()

    def flush(self) -> None:
        if self._step is None:  # a step has the stream for itself
            super().flush()

    # The handshake

    def give_up_handshake(self, why: str) -> None:
        """Close, because the handshake takes too long, or too many are under way."""
        self._close(logging.WARNING, "handshake", f"TLS handshake of {self.peer} failed: {why}")

    @closing_on_error
    def _on_readable(self) -> None:
        if self._has_handshaken:
            super()._on_readable()
        elif self._step is not None:
            self._owner.loop.remove_reader(self._descriptor)
            self._reader_registered = False
        else:
            self._receive_handshake()

    def _receive_handshake(self) -> None:
        try:
            count = self._socket.recv_into(self._handshakes.received)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.give_up_handshake(str(error))
            return
        if not count:
            if self._has_begun:
                self.give_up_handshake("the other side closed the connection")
            else:  # a mere look whether a server listens, as by the controller
                self._handshakes.end(self, completed=None)
                self.close()
            return
        self._has_begun = True
        self._stream.feed(memoryview(self._handshakes.received)[:count])
        self._step = self._handshakes.step(self._stream, self._stepped)

    def _stepped(self, step: asyncio.Future[bool]) -> None:
        self._step = None
        if step.cancelled():
            return
        error = step.exception()
        self.flush()  # the alert of a step that failed, too
        if self.closed:
            return
        if isinstance(error, ssl.SSLError):
            self.give_up_handshake(_reason(error))
        elif error is not None:
            self.fail("handshake", "TLS handshake", error)
        elif step.result():
            self._complete_handshake()
        else:
            self._register_reader()

    def _complete_handshake(self) -> None:
        certificate = self._stream.peer_certificate
        if certificate is not None:
            try:
                self.authenticator.certified(self._tls.principal_of(certificate))
            except Exception as error:  # any client can make certificates
                self.give_up_handshake(f"the certificate maps to no principal: {error}")
                return
            self.authenticated()
        self._handshakes.end(self, completed=True)
        self._has_handshaken = True
        self._register_reader()
        if self._stream.has_more:
            self._decrypt()

    # Receiving

    def _receive(self) -> None:
        if self._stream.has_more:
            self._decrypt()
            return
        wire, received = memoryview(self._handshakes.received), self._received
        room = self._room()
        taken = 0
        began_s = perf_counter()
        until_s = began_s + SHARE_S
        try:
            for _ in range(_SLICES_PER_TURN):
                if self._stream.ended or self._stream.has_more:
                    break
                count = self._socket.recv_into(wire)
                if count == 0:
                    if taken:
                        break  # handle that; the next call finds the end, too
                    self.close()
                    return
                self._stream.feed(wire[:count])
                taken += self._stream.read_into(room[taken:], until_s)
                if count < len(wire) or taken == len(room) or perf_counter() > until_s:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except ssl.SSLError as error:
            self.refuse("TLS", _reason(error))
            return
        except OSError as error:
            self._close(logging.INFO, "lost", f"connection of {self.peer} lost: {error}")
            return
        self.active = True
        received.end += taken
        self._received_all(began_s)

    @closing_on_error
    def _decrypt(self) -> None:
        received = self._received
        began_s = perf_counter()
        try:
            room = self._room()  # may move what is there, and its end with it
            received.end += self._stream.read_into(room, began_s + SHARE_S)
        except ssl.SSLError as error:
            self.refuse("TLS", _reason(error))
            return
        self._received_all(began_s)

    def _received_all(self, began_s: float) -> None:
        worked_s = perf_counter() - began_s
        if worked_s > NOTED_WORK_S:
            self._owner.fair_queue.spent(worked_s)
        if self._stream.has_output:  # responses of the protocol itself
            self.flush()
        self._handle_received()

    def _handle_received(self) -> None:
        super()._handle_received()
        if self.closed or self._paused:
            return
        if self._stream.ended:
            self.close()
        elif self._stream.has_more and not self._is_decrypting_later:
            self._is_decrypting_later = True
            self._owner.fair_queue.wait(self._decrypt_more)

    def _decrypt_more(self) -> None:
        self._is_decrypting_later = False
        if self.closed or self._paused:
            return  # the end of the pause handles the received bytes, and comes here again
        if self._must_pause():
            self._paused = True
            return
        self._decrypt()


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words: `wrong version number`, `certificate verify failed: ...`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
