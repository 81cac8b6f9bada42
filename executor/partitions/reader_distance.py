"""The distance of a consumer from the broker that it reads from: same host, same rack, or elsewhere."""

from enum import Enum, auto

from sparklog.node.own_addresses import is_this_machine


class ReaderDistance(Enum):
    SAME_HOST = auto()
    SAME_RACK = auto()
    ELSEWHERE = auto()


def reader_distance(peer: str, client_rack: str, own_rack: str | None) -> ReaderDistance:
    """Return the distance of a consumer with the address `peer` (`host:port`); `client_rack` may be empty."""
    if is_this_machine(peer.rpartition(":")[0].strip("[]")):
        return ReaderDistance.SAME_HOST
    return ReaderDistance.SAME_RACK if client_rack and client_rack == own_rack else ReaderDistance.ELSEWHERE
