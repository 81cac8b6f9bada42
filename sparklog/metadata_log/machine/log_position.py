"""How far a copy of the metadata log reaches, and which of two copies is the longer one."""

from typing import NamedTuple

from sparklog.types import LeaderEpoch, Offset


class LogPosition(NamedTuple):
    """The end of a log. Compares as Raft does: by the last record's epoch first, then by length.

    >>> LogPosition(2, 10) < LogPosition(3, 4) < LogPosition(3, 5)
    True
    """

    last_epoch: LeaderEpoch
    """The leader epoch of the last record, 0 in an empty log."""
    end_offset: Offset
    """Exclusive."""


EMPTY_LOG = LogPosition(0, 0)
