"""The processes that clean logs, at most log.cleaner.threads at a time.

A cleaning takes minutes of a core and holds the interpreter, so it must not run in the broker's process. A
process is started when there is a log to clean and ended when there is none, so that a broker without
compacted topics has no such process. Rule kept: they end with the broker
(`sparklog.node.storage.cleaning.process`).
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import Final, TypeVar

from sparklog.executor.python_process import start_module
from sparklog.node.storage.cleaning.request import CleaningOutcome, CleaningRequest

_MODULE: Final = "sparklog.node.storage.cleaning.process"
_Result = TypeVar("_Result")


class CleaningFailedError(Exception):
    """A log was not cleaned, because of its files, its disk, or the end of the process."""


class CleanerProcess:
    """One process; the first request starts it, and the next one after its death starts another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self._thread = ThreadPoolExecutor(1, "sparklog-cleaner")

    @property
    def process_id(self) -> int | None:
        """None before the first request."""
        return None if self._process is None else self._process.pid

    async def run_in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run blocking work in the thread that belongs to this process."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def clean(self, request: CleaningRequest) -> CleaningOutcome:
        """Clean a log. Blocks.

        Raises:
            CleaningFailedError: it cannot be done now.
            OSError: the disk failed.
        """
        if self._process is None:
            self._process = _start()
        process = self._process
        if self._is_ended:
            # `end` was called before the process existed.
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
        """Kill the process; the next request starts another: the log may be the cause of its death."""
        process.kill()
        if not self._is_ended:
            Thread(target=_bury, args=(process,), daemon=True).start()
            self._process = None

    def close(self) -> None:
        """End the process and the thread."""
        self.end()
        self._thread.shutdown(wait=False)

    def end(self) -> None:
        """Kill the process, in any thread. Work in the thread goes on."""
        self._is_ended = True
        process = self._process
        if process is not None:
            process.kill()
            # A process that waits for a disk takes its time to die.
            Thread(target=_bury, args=(process,), daemon=True).start()


def _start() -> "subprocess.Popen[bytes]":
    try:
        return start_module(_MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        # This is not an error of the log's disk.
        raise CleaningFailedError(f"no cleaner process can be started: {error}") from error


def _bury(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


class CleanerProcesses:
    def __init__(self, count: int) -> None:
        self.count = count
        """The largest number of processes at a time."""
        self._running: set[CleanerProcess] = set()
        self._changed = asyncio.Condition()
        self._is_closed = False

    async def resize(self, count: int) -> None:
        """Change the number of processes. Surplus ones end when they have cleaned their current log."""
        async with self._changed:
            self.count = count
            self._changed.notify_all()

    @property
    def are_too_many(self) -> bool:
        """Whether a holder of a process has to return it."""
        return len(self._running) > self.count

    @asynccontextmanager
    async def one(self) -> AsyncIterator[CleanerProcess | None]:
        """Wait for a free place and yield a process, which ends with the block; None once closed."""
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
        self._is_closed = True
        for process in self._running:
            process.end()
