"""Jobs that fail or hang, and the other jobs meanwhile."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from sparklog.executor.logs.log_upkeep import UpkeepScheduler
from sparklog.node.storage.directory.log_directory import LogDirectory


class Job:
    """One that waits for what it is given, raises what it is given, and counts its runs by directory."""

    interval_ms = 100
    is_due_at_start = True

    def __init__(
        self, name: str, *, until: asyncio.Event | None = None, error: Exception | None = None
    ) -> None:
        self.name = name
        self.runs: Counter[str] = Counter()
        self._until = until
        self._error = error

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        self.runs[directory.path.name] += 1
        if self._until is not None and directory.path.name == "slow":
            await self._until.wait()
        if self._error is not None:
            raise self._error


async def ticked(scheduler: UpkeepScheduler, now_ms: int) -> None:
    """Tick, and let what was begun go as far as it can."""
    scheduler.tick(now_ms)
    for _ in range(3):
        await asyncio.sleep(0)


def test_job_that_raises_is_logged_and_run_again_at_its_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in one job must end neither it nor the upkeep, and must not be silent."""
    directory = LogDirectory.open(tmp_path / "d")
    wrong, right = Job("wrong", error=RuntimeError("a mistake")), Job("right")

    async def run() -> None:
        scheduler = UpkeepScheduler([wrong, right], [directory])
        scheduler.start(0)
        for now_ms in (0, 50, 100, 199, 200):
            await ticked(scheduler, now_ms)
        await scheduler.stop()

    asyncio.run(run())
    directory.close()
    assert (wrong.runs, right.runs) == (Counter(d=3), Counter(d=3))
    told = [record for record in caplog.records if "wrong failed" in record.getMessage()]
    assert len(told) == 3
    assert "a mistake" in str(told[0].exc_info)


def test_job_that_hangs_on_one_directory_delays_neither_another_job_nor_itself_elsewhere(
    tmp_path: Path,
) -> None:
    """Today's disk that hangs must not be tomorrow's disk that fills for lack of retention."""
    directories = [LogDirectory.open(tmp_path / name) for name in ("slow", "sound")]

    async def run() -> None:
        may_end = asyncio.Event()
        hangs, other = Job("hangs", until=may_end), Job("other")
        scheduler = UpkeepScheduler([hangs, other], directories)
        scheduler.start(0)
        for now_ms in range(0, 1000, 100):
            await ticked(scheduler, now_ms)
        assert hangs.runs == Counter(slow=1, sound=10)
        assert other.runs == Counter(slow=10, sound=10)
        may_end.set()
        await ticked(scheduler, 1000)
        await ticked(scheduler, 1001)
        assert hangs.runs == Counter(slow=2, sound=11)
        await scheduler.stop()

    asyncio.run(run())
    for directory in directories:
        directory.close()
