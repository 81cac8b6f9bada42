"""Which process is which broker: by the port on which clients are told to find it; and what else listens."""

import contextlib
import re
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import psutil

API_VERSIONS: Final = bytes.fromhex("0000000b 0012 0000 00000001 0001 78")
GET: Final = b"GET / HTTP/1.0\r\n\r\n"
PY4J_CALL: Final = b"c\nz:java.lang.System\ngetProperty\nsuser.home\ne\n"
PY4J_FORGET: Final = b"g\nnobody\ne\n"
"""As a JVM says of what it calls no more."""
_WRONG_TOKEN: Final = b"\x00\x00\x00\x03abc"
"""As PySpark's Python begins where Spark's JVM asks for one."""
SILENCE_S: Final = 10.5
"""PySpark's JVM waits 10 s for a token."""
_REFUSAL: Final = re.compile(rb"![xz].*|(.{4})?(\x00{3}\x03err)?", re.DOTALL)
"""Py4J's; and PySpark's, before which its daemon tells the process id of the worker that wants a secret."""


class Listening(NamedTuple):
    """A port that is open."""

    address: str
    port: int
    process_id: int


def listening_of(*processes: psutil.Process) -> list[Listening]:
    """Return what these processes listen on.

    Each is asked by itself: a list of the whole host names one process of those that share a socket, as the
    driver and the controller do.
    """
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker of PySpark's daemon that has ended since
            found += [
                Listening(each.laddr.ip.removeprefix("::ffff:"), each.laddr.port, process.pid)
                for each in process.net_connections("tcp")
                if each.status == psutil.CONN_LISTEN
            ]
    return found


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


class SilentStranger:
    """A connection that says nothing."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), 1)
        self._until_s = time.monotonic() + SILENCE_S

    def wait(self) -> None:
        """Return when the other side has closed it, or has had the time in which PySpark's would."""
        self._connection.settimeout(max(self._until_s - time.monotonic(), 0.01))
        with contextlib.suppress(OSError):
            self._connection.recv(1)
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


@contextlib.contextmanager
def strangers_at(executors: Iterable[psutil.Process]) -> Iterator[list[SilentStranger]]:
    """Do all that ends an executor whose barrier task has a port; yields those that are silent meanwhile.

    It is seen first that the JVM of each executor has no port but its block manager's.
    """
    with contextlib.ExitStack() as stack:
        silent = []
        for executor in executors:
            (listening,) = listening_of(executor)
            silent.append(SilentStranger(listening.port))
            stack.callback(silent[-1].close)
            socket.create_connection(("127.0.0.1", listening.port), 1).close()
            answer_to(listening.port, _WRONG_TOKEN, 1)
        yield silent


def listening_processes(ports: set[int]) -> set[int]:
    """Return the processes that listen on any of `ports`."""
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports
    }
