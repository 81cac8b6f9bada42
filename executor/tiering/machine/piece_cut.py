"""The end of a piece of a log whose records are of one day or hour.

A table that is partitioned by day has files of one day each, so the copy of a log is cut where the day
changes. Cuts lie between batches, since followers and new leaders begin a log at the end of its tier.

Timestamps are clients' and may go back and forth. A run is a range of batches of one period. Short runs
become a piece each, unless the next `SHORT_RUNS` go back at least `STEPS_BACK` times: these become one mixed
piece, which the table's committer divides into files of its own, and which ends where a long run begins. A
batch with records of two periods is a run of its own, and mixed.

Order for the caller: `add` the runs as they lie in the log, joined or not; write the records below
`settled_to`; end at `end_offset` once it is not `None`. After the last run, `finish`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklog.protocol.types import Offset

LONG_RUN_BYTES: Final = 1024 * 1024
"""A run of that size is worth an object of its own."""
SHORT_RUNS: Final = 8
STEPS_BACK: Final = 3


@dataclass(slots=True)
class _Run:
    base_offset: Offset
    period: int | None
    size_bytes: int


class PieceCut:
    def __init__(self, *, long_run_bytes: int = LONG_RUN_BYTES) -> None:
        self.end_offset: Offset | None = None
        """The piece's exclusive end; `None` while records are needed that say it."""
        self._long_run_bytes: Final = long_run_bytes
        self._runs: list[_Run] = []
        """Those in doubt: of a mixed piece only the last."""
        self._is_mixed = False

    def add(self, base_offset: Offset, period: int | None, size_bytes: int) -> None:
        """Add the next batches; `period` is `None` for a batch with records of several."""
        if self.end_offset is not None:
            return
        runs = self._runs
        if runs and runs[-1].period == period:
            runs[-1].size_bytes += size_bytes
        else:
            runs.append(_Run(base_offset, period, size_bytes))
        self._decide()

    def _decide(self) -> None:
        runs = self._runs
        is_long = runs[-1].size_bytes >= self._long_run_bytes
        if not self._is_mixed and len(runs) > 1:
            is_decided = is_long or runs[0].size_bytes >= self._long_run_bytes
            if not is_decided and len(runs) > SHORT_RUNS:
                self._is_mixed = _steps_back(runs) >= STEPS_BACK
                is_decided = not self._is_mixed
            if is_decided:
                self.end_offset = runs[1].base_offset
                return
        if self._is_mixed:
            del runs[:-1]
            if is_long and runs[0].period is not None:
                self.end_offset = runs[0].base_offset

    @property
    def settled_to(self) -> Offset | None:
        """Return the offset below which all records are in the piece; `None` if all so far are."""
        if self._is_mixed:
            return None if self._runs[0].period is None else self._runs[0].base_offset
        return self._runs[1].base_offset if len(self._runs) > 1 else None

    def finish(self, end_offset: Offset) -> Offset:
        """Return the end of the piece, if there is nothing more up to `end_offset`."""
        if self.end_offset is None:
            is_whole = self._is_mixed or len(self._runs) < 2
            self.end_offset = end_offset if is_whole else self._runs[1].base_offset
        return self.end_offset


def _steps_back(runs: Sequence[_Run]) -> int:
    """Return how often the period falls, or is none."""
    return sum(
        after.period is None or (before.period is not None and after.period < before.period)
        for before, after in pairwise(runs)
    )
