"""The marker of a log that is being filled with its tier's records, in the log's directory.

It is on the disk before the log is emptied, and goes after the flush of what was brought back. A log with it
is a part of the tier, which a crash or an error of the store has left: its leader has to read the tier first.
A log that has gone on since, as a follower, is whole: it has records of the leadership that brought back or
of later ones, or ends above the tier that was to be brought back.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.node.storage.files import replace_file, sync_directory
from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import LeaderEpoch, Offset

FILE_NAME: Final = "bring-back"


@dataclass(frozen=True, slots=True)
class BringBackMarker:
    leader_epoch: LeaderEpoch
    """Of the leader that has begun to bring the tier back."""
    end_offset: Offset
    """Of the tier then."""

    def applies_to(self, log: Log) -> bool:
        """Return whether the log has nothing but a part of the tier."""
        log_end_offset = log.log_end_offset
        epochs = [entry for entry in log.epochs.entries if entry.start_offset < log_end_offset]
        is_newer = bool(epochs) and epochs[-1].leader_epoch >= self.leader_epoch
        return log_end_offset <= self.end_offset and not is_newer


def write_marker(directory: Path, marker: BringBackMarker) -> None:
    """Write the marker to the disk. Blocks.

    Raises:
        OSError: of the disk.
    """
    replace_file(directory / FILE_NAME, b"%d %d\n" % (marker.leader_epoch, marker.end_offset))


def read_marker(directory: Path) -> BringBackMarker | None:
    """Return the marker of a log; None for none, or for one of which nothing is left on the disk."""
    try:
        leader_epoch, end_offset = (directory / FILE_NAME).read_bytes().split()
        return BringBackMarker(int(leader_epoch), int(end_offset))
    except (OSError, ValueError):
        return None


def remove_marker(directory: Path) -> None:
    """Remove the marker if there is one. Blocks.

    Raises:
        OSError: of the disk.
    """
    path = directory / FILE_NAME
    if path.exists():
        path.unlink()
        sync_directory(directory)
