"""Which process is which broker: by the port on which clients are told to find it; and what else listens."""

import contextlib
import re
import socket
from typing import Final, NamedTuple

import psutil

__all__ = [
    "API_VERSIONS",
    "GET",
    "PY4J_CALL",
    "PY4J_FORGET",
    "WRONG_TOKEN",
    "Listening",
    "answer_to",
    "hang_up_on",
    "listening_of",
    "listening_processes",
]

API_VERSIONS: Final = bytes.fromhex("0000000b 0012 0000 00000001 0001 78")
GET: Final = b"GET / HTTP/1.0\r\n\r\n"
PY4J_CALL: Final = b"c\nz:java.lang.System\ngetProperty\nsuser.home\ne\n"
PY4J_FORGET: Final = b"g\nnobody\ne\n"
"""As a JVM says of what it calls no more."""
WRONG_TOKEN: Final = b"\x00\x00\x00\x03abc"
"""As PySpark's Python begins where Spark's JVM asks for one."""
_REFUSAL: Final = re.compile(rb"![xz].*|(.{4})?(\x00{3}\x03err)?", re.DOTALL)
"""Py4J's; and PySpark's, before which its daemon tells the process id of the worker that wants a secret."""


class Listening(NamedTuple):
    """A port that is open."""

    address: str
    port: int
    process_id: int


def listening_of(*processes: psutil.Process) -> list[Listening]:
    """Return what these processes listen on."""
    wanted = {process.pid for process in processes}
    return [
        Listening(each.laddr.ip.removeprefix("::ffff:"), each.laddr.port, each.pid)
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.pid in wanted
    ]


def answer_to(port: int, greeting: bytes, patience_s: float) -> bytes:
    """Return what a stranger is told within a time, or until he is closed; nothing if he is refused.

    A barrier task's port takes nobody any more once it has refused somebody.
    """
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), patience_s) as connection,
    ):
        connection.sendall(greeting)
        answer = connection.recv(1 << 10)
        return b"" if _REFUSAL.fullmatch(answer) else answer
    return b""


def hang_up_on(port: int) -> None:
    """Connect, and close at once, as a port scan does."""
    socket.create_connection(("127.0.0.1", port), 1).close()


def listening_processes(ports: set[int]) -> set[int]:
    """Return the processes that listen on any of `ports`."""
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports
    }
