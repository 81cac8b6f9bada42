"""The next step of one replica's move into another directory of its broker.

Pure. The copy becomes the replica when it has all records, and not before
- they are on disk: else a power failure could lose records that were on disk before;
- the metadata has the copy's directory for the replica (KIP-858): else the controller would assume a
  directory that the replica has left, and a start after a crash would not know which of two logs is complete.

The current log keeps growing meanwhile; the copy follows it. So the step that replaces it copies the rest, if
it is small, in the thread that changes both logs.

Order for the caller: ask `next_step`, do it, ask again. `secured` when the copy was flushed.

Source: Kafka's ReplicaAlterLogDirsThread, with its promotion states.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from sparklog.protocol.types import Offset


class Step(Enum):
    COPY = auto()
    """Append the next range of the current log to the copy."""
    REST = auto()
    """Pause: the quota is used up."""
    SECURE = auto()
    """Flush the copy, and write the checkpoints of its directory."""
    REPORT = auto()
    """Report the target directory to the controller."""
    WAIT = auto()
    """Wait for the metadata, or for the producers of the current log."""
    REPLACE = auto()
    """Copy the rest and replace the current log, in one go."""


@dataclass(slots=True)
class DirectoryMove:
    """A move into the directory of the id `target`."""

    target: UUID
    _goal: Offset | None = field(init=False, default=None)
    """The offset up to which the copy must be on disk: the log's end when the copy first came near."""
    _is_secured: bool = field(init=False, default=False)
    _is_reported: bool = field(init=False, default=False)

    def secured(self) -> None:
        self._is_secured = True

    def next_step(
        self,
        *,
        log_end_offset: Offset,
        copied_offset: Offset,
        is_near: bool,
        is_settling: bool,
        is_throttled: bool,
        assigned_directory: UUID | None,
    ) -> Step:
        """Return the next step, for a log and a copy with these ends.

        `is_near`: the rest can be copied at once; `is_settling`: the current log was truncated and has not
        loaded its producers yet; `assigned_directory`: the replica's directory in the metadata.

        >>> facts = {"is_settling": False, "is_throttled": False, "assigned_directory": None}
        >>> move = DirectoryMove(UUID(int=7))
        >>> move.next_step(log_end_offset=9, copied_offset=0, is_near=False, **facts)
        <Step.COPY: 1>
        """
        if is_settling:
            return Step.WAIT
        copy = Step.REST if is_throttled else Step.COPY
        if not is_near:
            return copy
        if not self._is_secured:
            # A small log may be near as a whole, and not copied at all.
            self._goal = log_end_offset if self._goal is None else min(self._goal, log_end_offset)
            return Step.SECURE if copied_offset >= self._goal else copy
        if not self._is_reported:
            self._is_reported = True
            return Step.REPORT
        if assigned_directory == self.target:
            return Step.REPLACE
        return copy if copied_offset < log_end_offset else Step.WAIT
