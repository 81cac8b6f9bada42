"""The processes in which logs are cleaned, at most log.cleaner.threads at a time.

A cleaning takes minutes of a core and holds the interpreter: beside the loop it would be in everybody's way.
One is started when there is something to clean and ended when there is nothing more, so that a broker without
compacted topics has none. Rule kept: they end with the broker (`sparklog.storage.cleaning.process`).
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final, TypeVar

from sparklog.storage.cleaning.request import CleaningOutcome, CleaningRequest

_MODULE: Final = "sparklog.storage.cleaning.process"
_Result = TypeVar("_Result")


class CleaningFailedError(Exception):
    """A log was not cleaned, for what its files or the disk are like, or because the process has ended."""


class CleanerProcess:
    """One of them; started by its first request, and anew by the next one if it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self._thread = ThreadPoolExecutor(1, "sparklog-cleaner")

    @property
    def process_id(self) -> int | None:
        """Of the process, once it is there."""
        return None if self._process is None else self._process.pid

    async def beside_loop(self, work: Callable[[], _Result]) -> _Result:
        """Have something done that blocks, by the thread that belongs to this process."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def clean(self, request: CleaningRequest) -> CleaningOutcome:
        """Have a log cleaned. Blocks.

        Raises:
            CleaningFailedError: it cannot be done now.
            OSError: the disk is behind it.
        """
        if self._process is None:
            self._process = _start()
        process = self._process
        if self._is_ended:
            # That was before it was there.
            self.end()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request.encode())
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            self._let_go(process)
            raise CleaningFailedError(f"cleaner process {process.pid} has ended")
        try:
            answer = json.loads(line)
            if "error" not in answer:
                return CleaningOutcome.decode(answer)
            errno, reason = answer["errno"], answer["error"]
        except (ValueError, TypeError, KeyError) as error:
            self._let_go(process)
            raise CleaningFailedError(
                f"cleaner process {process.pid} answered {line[:100]!r}: {error!r}"
            ) from error
        if errno is not None:
            raise OSError(errno, reason)
        raise CleaningFailedError(reason)

    def _let_go(self, process: "subprocess.Popen[bytes]") -> None:
        """Have the next request start another one: what killed this one may be the log that it had."""
        process.kill()
        if not self._is_ended:
            Thread(target=_bury, args=(process,), daemon=True).start()
            self._process = None

    def close(self) -> None:
        """End it, and have no more done beside the loop."""
        self.end()
        self._thread.shutdown(wait=False)

    def end(self) -> None:
        """End it, whatever it is doing; safe in any thread. What is done beside the loop goes on."""
        self._is_ended = True
        process = self._process
        if process is not None:
            process.kill()
            # One that waits for a disk takes its time.
            Thread(target=_bury, args=(process,), daemon=True).start()


def _start() -> "subprocess.Popen[bytes]":
    # It finds the code where this process does (and not, by `-P`, where this happens to work), and knows one
    # thread.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OMP_NUM_THREADS": "1",
    }
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        # That says nothing of the disk that the log is on.
        raise CleaningFailedError(f"no cleaner process can be started: {error}") from error


def _bury(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


class CleanerProcesses:
    """All of one broker."""

    def __init__(self, count: int) -> None:
        self.count = count
        """How many there may be at a time."""
        self._running: set[CleanerProcess] = set()
        self._changed = asyncio.Condition()
        self._is_closed = False

    async def resize(self, count: int) -> None:
        """Have so many from now on. Those that are too many end when they have cleaned the log they have."""
        async with self._changed:
            self.count = count
            self._changed.notify_all()

    @property
    def are_too_many(self) -> bool:
        """Whether whoever has one is to give it back."""
        return len(self._running) > self.count

    @asynccontextmanager
    async def one(self) -> AsyncIterator[CleanerProcess | None]:
        """Wait for one's turn and have a process, which ends behind this; None once they are closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or len(self._running) < self.count)
            if self._is_closed:
                process = None
            else:
                process = CleanerProcess()
                self._running.add(process)
        try:
            yield process
        finally:
            if process is not None:
                process.close()
                async with self._changed:
                    self._running.discard(process)
                    self._changed.notify_all()

    def close(self) -> None:
        """End all that are there; none is started from now on."""
        self._is_closed = True
        for process in self._running:
            process.end()
