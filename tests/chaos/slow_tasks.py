"""Tasks that are slow at times, so that Spark runs them a second time, and how many it did.

A slow one waits before its rows, so that its second attempt is done first and it writes late; or after them,
so that both have a transaction open at once.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
from pyspark import TaskContext

SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
    # Of a stage of one task, which has no others to be compared with.
    "spark.speculation.task.duration.threshold": "1s",
}
OFTEN: Final = 0.3
SHORTEST_S: Final = 1.0
LONGEST_S: Final = 4.0


def at_times_slowly(batches: Iterator[pa.RecordBatch], place: Path) -> Iterator[pa.RecordBatch]:
    """Have one task of a stage be slow, at times, and note it in `place`; its next attempt is not."""
    task = TaskContext.get()
    assert task is not None
    # Spark's workers are forks of one process, with the same state of chance.
    chance = random.SystemRandom()
    name = f"{task.stageId()} {task.partitionId()}"
    if task.attemptNumber() > 0:
        _note_if_twice(place, name)
    is_slow = task.partitionId() == 0 and task.attemptNumber() == 0 and chance.random() < OFTEN
    waits_first, wait_s = chance.random() < 0.5, chance.uniform(SHORTEST_S, LONGEST_S)
    if is_slow and waits_first:
        _wait(place, name, wait_s)
    yield from batches
    if is_slow and not waits_first:
        _wait(place, name, wait_s)


def ran_twice(place: Path) -> int:
    """Return how many tasks were begun while another attempt at them went on."""
    return len(_lines(place / "twice"))


def _wait(place: Path, name: str, wait_s: float) -> None:
    with (place / "slow").open("a") as slow:
        slow.write(f"{name} {os.getpid()} {time.time() + wait_s}\n")
    time.sleep(wait_s)


def _note_if_twice(place: Path, name: str) -> None:
    """Note it if who was slow is still there, and was not merely killed."""
    for line in _lines(place / "slow"):
        former, process, until_s = line.rsplit(" ", 2)
        if former == name and time.time() < float(until_s) and psutil.pid_exists(int(process)):
            with (place / "twice").open("a") as twice:
                twice.write(f"{name}\n")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []
