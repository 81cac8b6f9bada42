"""Damaged records: their detection by a leader, and its reaction.

Records go from the page cache to the socket without a check here, which would cost as much as all the rest.
Their reader checks the CRC. A follower that finds it wrong appends nothing and fetches again, and
`RepeatedFetches` notices that; so a bit that has flipped since the append is found as soon as a
replica reads it. Then `find_damage` reads the same bytes (beside the loop).

A leader with others in sync gives up: the controller takes its replica for lost, another one leads, and the
log is cut where the damage begins and fetched again. A leader that is alone has the only copy. It goes on,
and refuses what is damaged (`UnreadableRanges`). So does a replica that gave up and has become the only one
that can be elected cleanly, as the others stopped before its report was committed. No log is cut before the
metadata has another leader, and the replica in neither the ISR, nor the ELR, nor the last known ELR.

A follower of a slow or new leader asks again, too, and is not suspected. It refuses what is damaged, rests,
and then names the partition in a request again. Records that a fetch session has read once more for another
partition's request, or that came with an answer of an earlier leader epoch, it has merely not looked at.

Order for the caller: `served` for every request of a follower that names the partition and gets records of
it; if it says so, `find_damage` of that region.
"""

from typing import Final, NamedTuple

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset

_SUSPICIOUS_TIMES: Final = 3
"""A lost connection, or two fetches that cross, make a follower ask twice."""


class Damage(NamedTuple):
    first_offset: Offset
    end_offset: Offset | None
    """Exclusive; None: the beginning of the next record is unknown."""
    reason: str


class RepeatedFetches:
    """The followers that fetch records again which they were given already."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[BrokerId, tuple[Offset, LeaderEpoch, int]] = {}

    def served(self, broker_id: BrokerId, offset: Offset, leader_epoch: LeaderEpoch) -> bool:
        """Note that a follower is given records from `offset` on; return whether it was too often."""
        given = self._given.get(broker_id)
        times = given[2] + 1 if given is not None and given[:2] == (offset, leader_epoch) else 1
        suspicious = times >= _SUSPICIOUS_TIMES
        self._given[broker_id] = offset, leader_epoch, 0 if suspicious else times
        return suspicious


class UnreadableRanges:
    """The damaged records of the only copy there is."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: tuple[Damage, ...] = ()
        """By offset; mostly there are none."""

    def add(self, damage: Damage) -> None:
        self.ranges = tuple(sorted({*self.ranges, damage}, key=lambda known: known.first_offset))

    def limit(self, offset: Offset, limit: Offset) -> Offset:
        """Return the end of the records that can be read from `offset`, `limit` at most.

        Raises:
            KafkaError: corrupt_message: the record at `offset` is damaged.
        """
        for damage in self.ranges:
            if offset < damage.first_offset:
                return min(limit, damage.first_offset)
            if damage.end_offset is None or offset < damage.end_offset:
                raise KafkaError(ErrorCode.corrupt_message, damage.reason)
        return limit
