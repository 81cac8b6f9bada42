"""Processes that are killed where a test wants it, with SIGKILL: no `finally` of theirs runs.

They are forked from one that has loaded what they need and has no threads: so Spark's daemon forks workers.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Self

END_TIMEOUT_S: Final = 60.0


class MortalProcesses:
    """Whoever forks; a context manager."""

    def __enter__(self) -> Self:
        """Start it."""
        context = multiprocessing.get_context("forkserver")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_fork_on_demand, args=(other,), daemon=True)
        self._process.start()
        other.close()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        self._connection.close()
        self._process.join(END_TIMEOUT_S)
        self._process.close()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns in a process of its own, or None if it was killed.

        Raises:
            RuntimeError: it raised something.
        """
        self._connection.send((function, arguments))
        if not self._connection.poll(END_TIMEOUT_S):
            raise TimeoutError(f"{function.__name__} is not done after {END_TIMEOUT_S:.0f} s")
        status, result = self._connection.recv()
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return None
        if status:
            raise RuntimeError(f"{function.__name__} failed: {result}")
        return result


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _fork_on_demand(connection: Connection) -> None:
    # Here once, and not in each of them anew.
    import tests.compat.sinks  # noqa: F401

    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        results, result = multiprocessing.Pipe(duplex=False)
        process_id = os.fork()
        if process_id == 0:
            status = 1
            try:
                result.send(function(*arguments))
                status = 0
            except BaseException as error:
                result.send(repr(error))
            finally:
                os._exit(status)
        result.close()
        try:
            returned = results.recv()
        except EOFError:  # it was killed
            returned = None
        results.close()
        _, status = os.waitpid(process_id, 0)
        connection.send((status, returned))
