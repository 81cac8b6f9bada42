"""Leader epochs and their start offsets (`leader-epoch-checkpoint`).

Followers truncate by them (KIP-101, KIP-279, KIP-320). Rule kept: epochs and start offsets rise strictly
together; the leader of `leader_epoch` appended the records from `start_offset` up to the next entry's. Pure
state: `Log` writes it to disk when a method here reports a change.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from sparklog.protocol.types import LeaderEpoch, Offset


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that it wrote."""

    leader_epoch: LeaderEpoch
    start_offset: Offset


class EpochEndOffset(NamedTuple):
    leader_epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries: tuple[EpochEntry, ...] = ()
        self.latest: LeaderEpoch | None = None
        """The newest epoch of this log; None for an empty history."""
        self.replace(entries)

    def assign(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that `leader_epoch` begins at `start_offset`; return whether that was a change.

        Contradicting entries (of an epoch or offset not smaller) are removed.
        """
        entries = self.entries
        if entries and entries[-1].leader_epoch == leader_epoch and entries[-1].start_offset <= start_offset:
            return False
        kept = len(entries)
        while kept and (
            entries[kept - 1].leader_epoch >= leader_epoch or entries[kept - 1].start_offset >= start_offset
        ):
            kept -= 1
        self.entries = (*entries[:kept], EpochEntry(leader_epoch, start_offset))
        self.latest = leader_epoch
        return True

    def end_offset_for(self, leader_epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset | None:
        """Return the largest known epoch not above `leader_epoch` and its exclusive end offset.

        None if nothing is known: an empty history, or an epoch above the newest. For an epoch older than all
        known ones the first known start offset is its end.

        >>> LeaderEpochs([EpochEntry(1, 0), EpochEntry(4, 10)]).end_offset_for(3, 25)
        EpochEndOffset(leader_epoch=1, end_offset=10)
        """
        entries = self.entries
        if not entries or leader_epoch > entries[-1].leader_epoch:
            return None
        if leader_epoch == entries[-1].leader_epoch:
            return EpochEndOffset(leader_epoch, log_end_offset)
        higher = bisect_right(entries, leader_epoch, key=_leader_epoch)
        end_offset = entries[higher].start_offset
        floor_epoch = entries[higher - 1].leader_epoch if higher > 0 else leader_epoch
        return EpochEndOffset(floor_epoch, end_offset)

    def epoch_at(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch that wrote `offset`, or None if the history begins above it."""
        entries = self.entries
        slot = bisect_right(entries, offset, key=_start_offset)
        return entries[slot - 1].leader_epoch if slot else None

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Remove epochs that began at or after `end_offset`; return whether there were any."""
        entries = self.entries
        kept = len(entries)
        while kept and entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        self.entries = entries[:kept]
        self.latest = entries[kept - 1].leader_epoch if kept else None
        return kept != len(entries)

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Let the history begin at `start_offset`; return whether that was a change."""
        entries = self.entries
        reached = bisect_right(entries, start_offset, key=_start_offset)
        if reached == 0 or (reached == 1 and entries[0].start_offset == start_offset):
            return False
        self.entries = (EpochEntry(entries[reached - 1].leader_epoch, start_offset), *entries[reached:])
        return True

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        self.clear()
        for entry in entries:
            self.assign(*entry)

    def clear(self) -> None:
        self.entries = ()
        self.latest = None


def _leader_epoch(entry: EpochEntry) -> LeaderEpoch:
    return entry.leader_epoch


def _start_offset(entry: EpochEntry) -> Offset:
    return entry.start_offset
