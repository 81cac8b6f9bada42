"""The TCP sockets of this process, as the kernel sees them."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

TCP_INFO_BACKLOG = slice(28, 32)
"""`tcpi_sacked` of Linux' tcp_info, which for a listening socket is its backlog."""


@contextlib.contextmanager
def open_sockets(wanted: Callable[[socket.socket], bool]) -> Iterator[list[socket.socket]]:
    """Yield duplicates of this process's connected and listening sockets that are `wanted`."""
    found: list[socket.socket] = []
    try:
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                candidate = socket.socket(fileno=os.dup(int(descriptor.name)))
                if candidate.family == socket.AF_INET and wanted(candidate):
                    found.append(candidate)
                else:
                    candidate.close()
        yield found
    finally:
        for one in found:
            one.close()


def connected_to(port: int) -> Callable[[socket.socket], bool]:
    """Want the client's ends of connections to that port."""

    def wanted(candidate: socket.socket) -> bool:
        try:
            return bool(candidate.getpeername()[1] == port)
        except OSError:
            return False

    return wanted


def bound_to(port: int) -> Callable[[socket.socket], bool]:
    """Want the listening socket of that port and the connections it accepted."""
    return lambda candidate: bool(candidate.getsockname()[1] == port)


def listens(candidate: socket.socket) -> bool:
    """Return whether it is a listening socket."""
    return bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def backlog(listening: socket.socket) -> int:
    """Return how many connections may wait in the kernel."""
    info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    return int.from_bytes(info[TCP_INFO_BACKLOG], "little")
