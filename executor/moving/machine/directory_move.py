"""What is to be done next of one replica's move into another directory of its broker.

Pure. The copy becomes the replica when it has everything, and not before
- what was copied is on the disk: else a power failure would take what had long been there;
- the metadata says that the replica lies where the copy does (KIP-858): else a controller would count with a
  directory that the replica has left, and a start after a crash would not know which of two logs is whole.

The current log goes on growing meanwhile; the copy follows it. So the last of it is taken over in the step
that replaces it, by the thread that changes both logs, if that is little.

Order for the caller: ask `next_step`, do it, ask again. `secured` when the copy has been brought onto the
disk.

Source: Kafka's ReplicaAlterLogDirsThread, with its promotion states.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from sparklog.types import Offset


class Step(Enum):
    """What is to be done."""

    COPY = auto()
    """Append the next range of the current log to the copy."""
    REST = auto()
    """Nothing for a while: what may be copied in a second was."""
    SECURE = auto()
    """Bring the copy onto the disk, and the checkpoints of its directory with it."""
    TELL = auto()
    """Have the controller told where the replica is going to lie."""
    WAIT = auto()
    """Nothing until the metadata says more, or the current log is whole again."""
    REPLACE = auto()
    """Take the rest over and replace the current log, in one go."""


@dataclass(slots=True)
class DirectoryMove:
    """A move into the directory of the id `target`."""

    target: UUID
    _goal: Offset | None = field(init=False, default=None)
    """Up to where the copy is to be on the disk: where the log ended when the copy first came near."""
    _is_secured: bool = field(init=False, default=False)
    _is_told: bool = field(init=False, default=False)

    def secured(self) -> None:
        """What the copy has, all that is older than a moment ago, is on the disk."""
        self._is_secured = True

    def next_step(
        self,
        *,
        log_end_offset: Offset,
        copied_offset: Offset,
        is_near: bool,
        is_settling: bool,
        is_throttled: bool,
        told_directory: UUID | None,
    ) -> Step:
        """Return the next step, of a log and a copy that end there.

        `is_near` says that what the copy lacks can be taken over at once; `is_settling` that the current log
        was cut and does not know its producers yet. `told_directory` is where the metadata says that the
        replica lies.

        >>> facts = {"is_settling": False, "is_throttled": False, "told_directory": None}
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
            # It may be that all of a small log is near, and none of it copied.
            self._goal = log_end_offset if self._goal is None else min(self._goal, log_end_offset)
            return Step.SECURE if copied_offset >= self._goal else copy
        if not self._is_told:
            self._is_told = True
            return Step.TELL
        if told_directory == self.target:
            return Step.REPLACE
        return copy if copied_offset < log_end_offset else Step.WAIT
