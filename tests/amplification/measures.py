"""What one request costs: memory at its peak, and the most work between two turns of any loop."""

import asyncio
import contextlib
import gc
import itertools
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from sparklog.node.metrics.registry import MetricRegistry
from sparklog.node.telemetry.otlp import MetricsEncoder
from sparklog.protocol.codec.guard import decode_entity

_RECEIVE_BYTES: Final = 1 << 16


class Answer(NamedTuple):
    """What came back."""

    received_bytes: int
    """0: the connection was closed without an answer."""


async def exchange(port: int, frame: bytes) -> Answer:
    """Send one frame on a connection of its own; throw away what comes back, which takes no memory here."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame)
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        left = size
        while left:
            left -= len(await reader.readexactly(min(left, _RECEIVE_BYTES)))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return Answer(0)
    finally:
        writer.close()
    return Answer(4 + size)


@contextlib.contextmanager
def traced_memory() -> Iterator[None]:
    """Have the allocator count, for `peak_memory_bytes`.

    What there is already is garbage no more: looking through a large process around each exchange would
    take longer than the exchanges.
    """
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


async def peak_memory_bytes(port: int, frame: bytes) -> tuple[Answer, int]:
    """Exchange a frame; return the most memory that this process had more than before."""
    gc.collect()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    answer = await exchange(port, frame)
    _, peak = tracemalloc.get_traced_memory()
    return answer, peak - before


def decoded_memory_bytes(entity_type: type[Any], body: bytes) -> int:
    """Return what the entity in `body` takes."""
    decode_entity(entity_type, body)  # its reader is made when it is first used
    before, _ = tracemalloc.get_traced_memory()
    entity = decode_entity(entity_type, body)
    after, _ = tracemalloc.get_traced_memory()
    del entity
    return after - before


class LongestStep:
    """The most calls of Python functions in one callback of any loop."""

    def __init__(self) -> None:
        self.calls = 0
        self.where: Counter[str] = Counter()
        self._since = threading.local()

    def restart(self) -> None:
        """Count anew."""
        self.calls = 0

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Be the profile function of a thread."""
        if event != "call":
            return
        since = self._since
        if frame.f_code is _RUN:
            since.calls = 0
            return
        if frame.f_code in _OF_FIGURES:
            since.calls = None
            return
        calls = getattr(since, "calls", None)
        if calls is None:
            return  # this thread runs no loop, or reads its figures
        since.calls = calls = calls + 1
        if calls > self.calls:
            self.calls = calls


_RUN: Final = asyncio.Handle._run.__code__
_OF_FIGURES: Final = (MetricRegistry.read_in_parts.__code__, MetricsEncoder.encode.__code__)
"""Broker and controller tell all their figures once a second, in steps that no request has a part in."""


@contextlib.contextmanager
def counted_steps() -> Iterator[LongestStep]:
    """Count in this thread and in those that begin meanwhile; every step has a turn of its own."""
    longest = LongestStep()
    seconds = itertools.count()
    ticking = lambda: float(next(seconds))  # noqa: E731  (of a clock by which every step lasts a second)
    threading.setprofile(longest.note)
    sys.setprofile(longest.note)
    try:
        with (
            patch("sparklog.node.serving.turns.perf_counter", ticking),
            patch("sparklog.node.serving.connection.perf_counter", ticking),
        ):
            yield longest
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
