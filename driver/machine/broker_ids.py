"""The ids of an application's brokers, which stay the same when the cluster is scaled. Pure.

A start counts the brokers rack by rack, so that rack 1 of racks with two brokers has the brokers 2 and 3.
A broker that is added to a rack later gets an id that does not depend on the number of racks: the third
one of rack 1 is broker 2001. The ids of added racks follow those of the first ones.

The driver keeps nothing between applications, and needs the ids before any broker runs. So each data
directory has the number of ids a rack that were counted rack by rack when its cluster was made
(`counted_of`), also that of a broker that has left. In older directories the ids below `STRIDE` show it,
and do so too if only a few have the number: a start with wrong numbers may have written it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.node.metadata.cluster_size import ClusterSize, rack_name
from sparklog.protocol.types import BrokerId

STRIDE: Final = 1_000


class BrokerIds(NamedTuple):
    counted: int
    """How many brokers of each rack are counted rack by rack; the others are numbered by `STRIDE`."""

    rack_names: tuple[str, ...] = ()
    """The names of the first racks; the others are called by their numbers."""

    def broker_id(self, rack: int, number: int) -> BrokerId:
        """Return the id of a rack's broker; racks and the brokers of each are numbered from 0.

        >>> [BrokerIds(2).broker_id(1, number) for number in range(3)]
        [2, 3, 2001]
        """
        return rack * self.counted + number if number < self.counted else number * STRIDE + rack

    def rack_of(self, broker_id: BrokerId) -> str:
        """Return the rack of a broker of this cluster.

        >>> [BrokerIds(2).rack_of(each) for each in (2, 3, 2001)]
        ['rack-1', 'rack-1', 'rack-1']
        """
        rack = broker_id // self.counted if broker_id < STRIDE else broker_id % STRIDE
        return rack_name(rack, self.rack_names)

    def racks(self, size: ClusterSize) -> dict[str, list[BrokerId]]:
        """Return the brokers of each rack of a cluster of that size.

        >>> BrokerIds(1).racks(ClusterSize(2, 2))
        {'rack-0': [0, 1000], 'rack-1': [1, 1001]}
        """
        return {
            rack_name(rack, self.rack_names): [
                self.broker_id(rack, number) for number in range(size.brokers_per_rack)
            ]
            for rack in range(size.racks)
        }


def counted_of(found: Mapping[BrokerId, int | None], size: ClusterSize) -> int:
    """Return how many brokers of each rack are counted rack by rack, by the directories that were found.

    Args:
        found: The number that the directories of each broker have; None if they are older.
        size: The size of the start; without any directories the cluster is new, and all are counted.

    >>> counted_of({}, ClusterSize(3, 2)), counted_of({0: 2, 2: 2, 4: 2}, ClusterSize(3, 1))
    (2, 2)
    >>> counted_of(dict.fromkeys([0, 1, 2, 3, 4, 5, 2000, 2001, 2002]), ClusterSize(3, 3))
    2
    """
    noted = Counter(number for number in found.values() if number is not None)
    older = {each for each, number in found.items() if number is None}
    known = older & possible_broker_ids(size)
    if noted and (noted.total() >= len(older) or not known):
        return noted.most_common(1)[0][0]
    if not known:
        return size.brokers_per_rack
    below = [each for each in known if each < STRIDE]
    return min(max(below, default=0) // size.racks + 1, size.brokers_per_rack)


def possible_broker_ids(size: ClusterSize) -> frozenset[BrokerId]:
    """Return every id that a broker of a cluster of that size may have, however it was counted.

    >>> sorted(possible_broker_ids(ClusterSize(2, 2)))
    [0, 1, 2, 3, 1000, 1001]
    """
    return frozenset(
        each
        for counted in range(1, size.brokers_per_rack + 1)
        for brokers in BrokerIds(counted).racks(size).values()
        for each in brokers
    )


SEARCHED_IDS: Final = 64
"""The lowest ids, which are searched for too: a start may have fewer racks or brokers than its cluster."""


def searched_broker_ids(size: ClusterSize) -> frozenset[BrokerId]:
    """Return the ids whose directories may show how the ids of a cluster were counted."""
    return possible_broker_ids(size) | frozenset(range(SEARCHED_IDS))
