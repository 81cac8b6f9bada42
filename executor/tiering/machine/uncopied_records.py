"""Since when the oldest uncopied record is in the log, for sparklog.remote.max.lag.ms.

Times are those at which the leader saw the records committed, not their timestamps, which clients choose.
"""

from collections import deque
from typing import Final

from sparklog.protocol.types import Offset

_MARKS_A_LAG: Final = 16
"""Of the time that a record may wait: how finely times are kept."""


class UncopiedRecords:
    def __init__(self) -> None:
        self._marks: deque[tuple[Offset, int]] = deque()
        """Ends of the log, and when records below them were seen first; both rise."""

    @property
    def is_known(self) -> bool:
        return bool(self._marks)

    def note(self, end_offset: Offset, now_ms: int, max_lag_ms: int) -> None:
        """Note that records below `end_offset` may be copied."""
        if self._marks and (
            end_offset <= self._marks[-1][0] or now_ms - self._marks[-1][1] < max_lag_ms // _MARKS_A_LAG
        ):
            return
        self._marks.append((end_offset, now_ms))

    def copied(self, end_offset: Offset) -> None:
        while self._marks and self._marks[0][0] <= end_offset:
            self._marks.popleft()

    def age_ms(self, now_ms: int) -> int:
        """Return for how long the oldest record has been without a copy; 0 for none."""
        return now_ms - self._marks[0][1] if self._marks else 0

    def is_due(self, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the oldest record would wait for too long without a copy."""
        return bool(self._marks) and now_ms - self._marks[0][1] >= max_lag_ms - max_lag_ms // _MARKS_A_LAG
