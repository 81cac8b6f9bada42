"""Frames over a socket pair: a length in four bytes, then so many bytes."""

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

MAX_FRAME_BYTES: Final = 64 << 20
_LENGTH: Final = struct.Struct("!I")


class FrameError(OSError):
    """A malformed frame, or the end of the connection within one."""


def send_frame(connection: socket.socket, frame: bytes) -> None:
    """Send a frame; one thread at a time.

    Raises:
        OSError: the other end is closed, or does not read.
    """
    connection.sendall(_LENGTH.pack(len(frame)) + frame)


def receive_frame(connection: socket.socket, goes_on: Callable[[], bool] = lambda: True) -> bytes | None:
    """Return the next frame; None at the end, or when `goes_on` returns False.

    `goes_on` is called whenever the socket's receive timeout has passed without a byte.

    Raises:
        OSError: the connection failed.
    """
    header = _receive(connection, _LENGTH.size, goes_on)
    if header is None:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {length} bytes")
    return _receive(connection, length, goes_on)


def _receive(connection: socket.socket, length: int, goes_on: Callable[[], bool]) -> bytes | None:
    received = bytearray(length)
    view, filled = memoryview(received), 0
    while filled < length:
        count = -1
        with contextlib.suppress(BlockingIOError):  # of SO_RCVTIMEO
            count = connection.recv_into(view[filled:])
        if count == 0 or (count < 0 and not goes_on()):
            return None
        filled += max(0, count)
    return bytes(received)


def with_send_timeout(connection: socket.socket, seconds: float) -> None:
    """Make each send fail that the other end does not read within the time."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval(seconds))


def timeval(seconds: float) -> bytes:
    """Return the time in the format of socket options."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
