"""Prints the table of docs/limits.md: what the costliest request of each API takes.

python -m tests.amplification
"""

import asyncio
import logging
import tempfile
import tracemalloc
from pathlib import Path
from typing import NamedTuple

from sparklog.node.apis.table import memory_times
from sparklog.protocol.codec.allowance import items_allowance_bytes
from tests.amplification.cluster import Listening, Target, attacked_cluster
from tests.amplification.measures import peak_memory_bytes
from tests.amplification.shapes import Shape, frame_of, shapes_of

_FEW, _MANY = 200, 1000
_NAMES = {"controller": "driver", "CONTROLLER": "broker, CONTROLLER"}


class _Cost(NamedTuple):
    peak_bytes: float
    """What an item takes at the peak, request and answer together."""
    wire_bytes: float
    shape: Shape


async def _cost(target: Target, listening: Listening, shape: Shape) -> _Cost:
    peaks, sizes = [], []
    for count in (2, _FEW, _MANY):
        frame = frame_of(shape, count, target.known)
        _, peak = await peak_memory_bytes(listening.port, frame)
        peaks.append(peak)
        sizes.append(len(frame))
    return _Cost((peaks[2] - peaks[1]) / (_MANY - _FEW), (sizes[2] - sizes[1]) / (_MANY - _FEW), shape)


async def _print_table(directory: Path) -> None:
    tracemalloc.start()
    async with attacked_cluster(directory) as target:
        print(
            "| listener | API | costliest array | bytes an item | memory an item | items at most | memory |"
        )
        print("|---|---|---|---|---|---|---|")
        for listening in target.listeners:
            for api_key, versions in sorted(listening.versions.items()):
                newest = [
                    s for s in shapes_of(api_key, versions) if s.version == versions.max_version and s.path
                ]
                if not newest or api_key not in listening.many:
                    continue
                costs = [await _cost(target, listening, shape) for shape in newest]
                worst = max(costs, key=lambda cost: cost.peak_bytes / cost.shape.item_memory_bytes())
                most = items_allowance_bytes(memory_times(api_key)) // worst.shape.item_memory_bytes()
                name = _NAMES.get(listening.name, "broker, clients")
                print(
                    f"| {name} | {api_key.name} v{worst.shape.version} "
                    f"| {'.'.join(worst.shape.path)}, {worst.shape.contents.value} "
                    f"| {worst.wire_bytes:.0f} | {max(worst.peak_bytes, 0):.0f} | {most:,} "
                    f"| {max(worst.peak_bytes, 0) * most / 2**20:.0f} MiB |"
                )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_print_table(Path(directory)))
