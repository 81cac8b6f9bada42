"""Position of the end of a copy of the metadata log, to compare copies."""

from typing import NamedTuple

from sparklog.protocol.types import LeaderEpoch, Offset


class LogPosition(NamedTuple):
    """The end of a log. Compares as in Raft: by the last record's epoch first, then by length.

    >>> LogPosition(2, 10) < LogPosition(3, 4) < LogPosition(3, 5)
    True
    """

    last_epoch: LeaderEpoch
    """The leader epoch of the last record; 0 in an empty log."""
    end_offset: Offset
    """Exclusive."""


EMPTY_LOG = LogPosition(0, 0)
