"""The replica that a task reads a partition from: one on its own host, else one in its rack, else the leader.

Only replicas in sync are considered; the leader is preferred among equals, since it has every record first.
The rack of a task is its client.rack, else the rack of the brokers on its host, if they are all of one.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from sparklog.node.own_addresses import is_this_machine
from sparklog.protocol.types import BrokerId


class BrokerPlace(NamedTuple):
    host: str
    rack: str | None


class ReaderPlace(NamedTuple):
    client_rack: str | None = None
    is_own_host: Callable[[str], bool] = is_this_machine

    def nearest(
        self, leader: BrokerId, in_sync: Collection[BrokerId], brokers: Mapping[BrokerId, BrokerPlace]
    ) -> BrokerId:
        """Return the nearest of a partition's replicas.

        >>> brokers = {1: BrokerPlace("a", "zone-1"), 2: BrokerPlace("b", "zone-2")}
        >>> ReaderPlace(is_own_host="b".__eq__).nearest(1, [1, 2], brokers)
        2
        >>> ReaderPlace("zone-1", is_own_host="x".__eq__).nearest(2, [1, 2], brokers)
        1
        """
        candidates = [leader, *sorted(each for each in in_sync if each != leader and each in brokers)]
        if len(candidates) == 1:
            return leader
        # A host may take a question to a name server, so only those that matter are looked at.
        for broker_id in candidates:
            if broker_id in brokers and self.is_own_host(brokers[broker_id].host):
                return broker_id
        rack = self.client_rack
        if rack is None:
            others = (place for broker_id, place in brokers.items() if broker_id not in candidates)
            racks = {place.rack for place in others if self.is_own_host(place.host)}
            rack = racks.pop() if len(racks) == 1 else None
        for broker_id in candidates:
            if rack is not None and broker_id in brokers and brokers[broker_id].rack == rack:
                return broker_id
        return leader
