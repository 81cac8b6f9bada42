"""Which leader epoch began at which offset (`leader-epoch-checkpoint`).

Followers truncate by it (KIP-101, KIP-279, KIP-320). Rule kept: epochs and start offsets rise strictly
together; an entry says that the records from `start_offset` up to the next entry's were appended by the
leader of `epoch`.
"""

from typing import NamedTuple

from sparklog.types import LeaderEpoch, Offset


class EpochEntry(NamedTuple):
    """The first offset a leader epoch wrote."""

    leader_epoch: LeaderEpoch
    start_offset: Offset


class EpochEndOffset(NamedTuple):
    """The answer to OffsetForLeaderEpoch: the epoch answered for and the exclusive end of it."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    """The epoch history of one log. Pure state; `Log` writes it to disk when it changes."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._entries: list[EpochEntry] = entries if entries is not None else []

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> LeaderEpoch | None:
        """The newest epoch that has a record in this log, or None for an empty history."""
        raise NotImplementedError

    def end_offset_for(self, leader_epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset | None:
        """Return the largest known epoch not above `leader_epoch` and where it ends here; None if unknown."""
        raise NotImplementedError
