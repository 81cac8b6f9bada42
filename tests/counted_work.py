"""Work that is counted instead of timed: the same on every machine, however loaded."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Count:
    """How much there was."""

    def __init__(self) -> None:
        self.value = 0


@contextlib.contextmanager
def counted_calls() -> Iterator[Count]:
    """Count the calls of Python functions in this thread; each item of a generator is one."""
    count = Count()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            count.value += 1

    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def counted_turns() -> Iterator[Count]:
    """Count the turns of the running loop, each of which whatever else waits has had too."""
    count, loop = Count(), asyncio.get_running_loop()

    def turn() -> None:
        nonlocal handle
        count.value += 1
        handle = loop.call_soon(turn)

    handle = loop.call_soon(turn)
    try:
        yield count
    finally:
        handle.cancel()
