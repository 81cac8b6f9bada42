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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import Final

from sparklog.storage.cleaning.request import CleaningOutcome, CleaningRequest

__all__ = ["CleanerProcess", "CleanerProcesses", "CleaningFailedError"]

_MODULE: Final = "sparklog.storage.cleaning.process"


class CleaningFailedError(Exception):
    """A log was not cleaned, for what its files or the disk are like, or because the process has ended."""


class CleanerProcess:
    """One of them; started by its first request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    @property
    def process_id(self) -> int | None:
        """Of the process, once it is there."""
        return None if self._process is None else self._process.pid

    def clean(self, request: CleaningRequest) -> CleaningOutcome:
        """Have a log cleaned. Blocks, for a thread of its own.

        Raises:
            CleaningFailedError: it cannot be done now.
            OSError: the disk is behind it, or a process cannot be started.
        """
        if self._process is None:
            # It finds the code where this process does, and knows one thread.
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OMP_NUM_THREADS": "1",
            }
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
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
        if not line:
            raise CleaningFailedError(f"cleaner process {process.pid} has ended")
        answer = json.loads(line)
        if "error" in answer:
            if answer["errno"] is not None:
                raise OSError(answer["errno"], answer["error"])
            raise CleaningFailedError(answer["error"])
        return CleaningOutcome.decode(answer)

    def end(self) -> None:
        """End it, whatever it is doing; safe in any thread."""
        self._is_ended = True
        if self._process is not None:
            self._process.kill()
            # One that waits for a disk takes its time.
            Thread(target=_bury, args=(self._process,), daemon=True).start()


def _bury(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


class CleanerProcesses:
    """All of one broker."""

    def __init__(self, count: int) -> None:
        self.count: Final = count
        self._running: set[CleanerProcess] = set()
        self._free = asyncio.Semaphore(count)
        self._is_closed = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[CleanerProcess | None]:
        """Wait for one's turn and have a process, which ends behind this; None once they are closed."""
        async with self._free:
            if self._is_closed:
                yield None
                return
            process = CleanerProcess()
            self._running.add(process)
            try:
                yield process
            finally:
                self._running.discard(process)
                process.end()

    def close(self) -> None:
        """End all that are there; none is started from now on."""
        self._is_closed = True
        for process in self._running:
            process.end()
