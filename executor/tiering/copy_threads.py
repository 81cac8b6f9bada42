"""The threads that make remote segments of local ones, at a lower priority than the broker's loop.

Their work is reading batches, Parquet and compression, most of it without the interpreter. On Linux a
priority belongs to a thread; elsewhere all threads of a process share one, which stays unchanged.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

NICENESS: Final = 10

_Result = TypeVar("_Result")


class CopyThreads:
    def __init__(self, count: int, niceness: int = NICENESS) -> None:
        self.executor = ThreadPoolExecutor(
            count, "sparklog-remote-copy", initializer=_be_nice, initargs=(niceness,)
        )

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run blocking work; cancellation does not end it, but its result is dropped."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    def close(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


def _be_nice(niceness: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
