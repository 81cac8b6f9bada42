"""Processor time, memory and descriptors of a node's process, and the lag of its event loop."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sparklog.node.limits.descriptors import DescriptorBudget, open_descriptors
from sparklog.node.loop.loop_lag import LoopWatch
from sparklog.node.metrics import process
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = Path("/proc/self/statm")


class ProcessMetrics:
    """A source of the registry. Created and read on the node's event loop."""

    def __init__(
        self, descriptors: DescriptorBudget, clock_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._descriptors = descriptors
        self._clock_s = clock_s
        self._watch = LoopWatch.of_running_loop()
        self._read_s = clock_s()
        self._waited_s = 0.0 if self._watch is None else self._watch.waited_s

    def samples(self, now_ms: int) -> Iterator[Sample]:
        yield Sample(process.CPU_TIME.of(), Kind.METER, time.process_time_ns() // 1_000_000)
        yield Sample(process.OPEN_FILES.of(), Kind.GAUGE, open_descriptors())
        yield Sample(process.MAX_FILES.of(), Kind.GAUGE, self._descriptors.limit)
        if (resident_bytes := _resident_bytes()) is not None:
            yield Sample(process.RESIDENT_MEMORY.of(), Kind.GAUGE, resident_bytes)
        watch = self._watch
        if watch is not None:
            yield Sample(process.LOOP_LAG.of(), Kind.GAUGE, watch.max_lag_ms)
            read_s, waited_s = self._clock_s(), watch.waited_s
            if read_s > self._read_s:
                idle = min(1.0, (waited_s - self._waited_s) / (read_s - self._read_s))
                yield Sample(process.LOOP_IDLE.of(), Kind.GAUGE, idle)
            self._read_s, self._waited_s = read_s, waited_s


def _resident_bytes() -> int | None:
    """Return the resident memory of the process; None without /proc."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None
