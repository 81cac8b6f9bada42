"""Starts the controller's process, and ends it.

A fresh interpreter of the same kind: the driver's own executable and flags, its environment and its import
path, which is sent over the socket pair (`sys.path` may have grown since the interpreter started: --py-files,
a notebook). It inherits the socket pair's other end, standard error, and nothing more. It leads a session of
its own, so that a Ctrl-C in the driver's terminal does not reach it.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.driver.process.codec import decoded, encoded
from sparklog.driver.process.frames import receive_frame, send_frame, with_send_timeout
from sparklog.driver.process.messages import FROM_CHILD, FromChild, FromDriver, StartController

SEND_TIMEOUT_S: Final = 5.0
"""A process that reads nothing for so long hangs: it is killed, and another one is started."""
EXIT_TIMEOUT_S: Final = 2.0
"""How long a process may take to end once it has closed its end of the socket pair."""
_LAUNCHER: Final = """
import sys
import json, os
descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
def read(length):
    data = b""
    while len(data) < length:
        more = os.read(descriptor, length - len(data))
        if not more:
            os._exit(1)
        data += more
    return data
sys.path[:] = json.loads(read(int.from_bytes(read(4), "big")))
from sparklog.driver.process.child import main
main(descriptor, parent)
"""


class Child:
    """One process, from its start to its end; `send` may be called from any thread."""

    def __init__(self, process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._sending = threading.Lock()

    @classmethod
    def start(cls) -> "Child":
        """Start a process, which begins to import its modules.

        Raises:
            OSError: it cannot be started.
        """
        if not sys.executable:
            raise OSError("sys.executable does not name the interpreter in which the controller can run")
        ours, theirs = socket.socketpair()
        try:
            # -P: the working directory is not on the import path, unless it is on the driver's sys.path.
            flags = [*subprocess._args_from_interpreter_flags(), "-P"]  # type: ignore[attr-defined]
            process = subprocess.Popen(
                [sys.executable, *flags, "-c", _LAUNCHER, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        child = cls(process, ours)
        with_send_timeout(ours, SEND_TIMEOUT_S)
        child._send(json.dumps([each for each in sys.path if isinstance(each, str)]).encode())
        return child

    @property
    def process_id(self) -> int:
        return self._process.pid

    def begin(self, start: StartController, sockets: Sequence[socket.socket]) -> None:
        """Start the controller with these sockets, which the process gets too."""
        with self._sending, contextlib.suppress(OSError):
            socket.send_fds(self._connection, [b"\0"], [each.fileno() for each in sockets])
        self.send(start)

    def send(self, message: FromDriver) -> None:
        """Send a message; it is lost if the process has ended or does not read."""
        self._send(encoded(message))

    def messages(self) -> Iterator[FromChild]:
        with contextlib.suppress(OSError):
            while (frame := receive_frame(self._connection)) is not None:
                yield decoded(frame, FROM_CHILD)

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> str:
        """Wait for the process's end, kill it if that takes too long, and return its status in words."""
        self._connection.close()
        try:
            status = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def close_in_fork(self) -> None:
        """Close this end in a process that was forked: it holds the driver's end open otherwise."""
        self._connection.close()

    def _send(self, frame: bytes) -> None:
        try:
            with self._sending:
                send_frame(self._connection, frame)
        except OSError:
            # A partial frame makes the rest unreadable. Killing a process that has ended has no effect.
            self.kill()
