"""The part of a partition that is read from the object store: remote segments and the seam behind them.

A record that the manifest covers is committed and does not change, so the seam may be anywhere up to the
manifest's end: records below it come from the store, the others from brokers. Between two segments is no
record that readers could see. Pure.
"""

from typing import NamedTuple

from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.protocol.types import Offset


class RemotePiece(NamedTuple):
    """The records [start_offset, end_offset) of one remote segment."""

    name: str
    """Of the object, below the prefix of the store."""
    size_bytes: int
    """Of the object, as is the number of records."""
    record_count: int
    start_offset: Offset
    end_offset: Offset


class History(NamedTuple):
    """The offsets [start_offset, end_offset) of one partition, all of whose records are in `pieces`."""

    start_offset: Offset
    end_offset: Offset
    """The seam."""
    owner_epoch: int
    """Of the application whose manifest this is."""
    pieces: tuple[RemotePiece, ...]

    def within(self, start_offset: Offset, end_offset: Offset) -> "History | None":
        """Return what is in a range; None if it begins at the seam or later.

        >>> pieces = (RemotePiece("a", 9, 10, 0, 10), RemotePiece("b", 9, 10, 10, 20))
        >>> History(0, 20, 1, pieces).within(4, 8).pieces
        (RemotePiece(name='a', size_bytes=9, record_count=10, start_offset=4, end_offset=8),)
        """
        start, end = max(start_offset, self.start_offset), min(end_offset, self.end_offset)
        if start > start_offset or start >= end:
            return None
        return History(
            start,
            end,
            self.owner_epoch,
            tuple(
                each._replace(
                    start_offset=max(each.start_offset, start), end_offset=min(each.end_offset, end)
                )
                for each in self.pieces
                if each.end_offset > start and each.start_offset < end
            ),
        )


def history_of(manifest: Manifest) -> History:
    return History(
        manifest.log_start_offset,
        manifest.end_offset,
        manifest.owner_epoch,
        tuple(
            RemotePiece(each.name, each.size_bytes, each.record_count, each.base_offset, each.end_offset)
            for each in manifest.segments
        ),
    )
