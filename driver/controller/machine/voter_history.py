"""The voter sets of the metadata log by offset: in force is the last one before it, committed or not.

A snapshot contains the voters at its end, and a truncation takes back sets that were not committed.
"""

from bisect import bisect_left
from operator import itemgetter

from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.protocol.types import Offset


class VoterHistory:
    """The voter sets of one replica of the log, by the offsets of their records."""

    def __init__(self) -> None:
        self._sets: list[tuple[Offset, VoterSet]] = []

    @property
    def latest(self) -> VoterSet | None:
        """The set in force at the end of the log; `None` if the log has not named voters."""
        return self._sets[-1][1] if self._sets else None

    def append(self, offset: Offset, voters: VoterSet) -> None:
        """Note the record at `offset`, which is above all others."""
        assert not self._sets or offset > self._sets[-1][0], f"voters at {offset} after {self._sets[-1][0]}"
        self._sets.append((offset, voters))

    def before(self, end_offset: Offset) -> VoterSet | None:
        """Return the set in force for a log that ends at `end_offset`, exclusive.

        >>> VoterHistory().before(12) is None
        True
        """
        count = bisect_left(self._sets, end_offset, key=itemgetter(0))
        return self._sets[count - 1][1] if count else None

    def truncate_to(self, end_offset: Offset) -> None:
        del self._sets[bisect_left(self._sets, end_offset, key=itemgetter(0)) :]

    def begin_at(self, end_offset: Offset, voters: VoterSet | None) -> None:
        self._sets = [] if voters is None else [(end_offset - 1, voters)]
