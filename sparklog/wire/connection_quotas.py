"""How many connections a broker takes, over all of its listeners.

max.connections, max.connections.per.ip, and what its files leave of the file descriptors.

Order for the caller, all on one event loop: `exhausted` before a connection is taken, `opened` when it is,
`closed` once when it ends.
"""

from collections import Counter
from typing import Final

from sparklog.wire.descriptors import DescriptorBudget

__all__ = ["ConnectionQuotas"]

_INT_MAX: Final = 2**31 - 1


class ConnectionQuotas:
    """The connections that are open, counted by address."""

    def __init__(
        self,
        *,
        max_connections: int = _INT_MAX,
        max_connections_per_ip: int = _INT_MAX,
        descriptors: DescriptorBudget | None = None,
    ) -> None:
        """Share `descriptors` among all that are of one process; without it they are not looked at."""
        self.descriptors = descriptors
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._open: Counter[str] = Counter()

    def exhausted(self, address: str, *, reserved: bool) -> str | None:
        """Return the quota that leaves no room for one more connection of `address`, `None` if there is room.

        max.connections does not hold for a `reserved` listener: clients must not shut the brokers out that
        have a listener of their own. Its connections count all the same.
        """
        if not reserved and self._open.total() >= self._max_connections:
            return f"max.connections={self._max_connections}"
        if self._open[address] >= self._max_connections_per_ip:
            return f"max.connections.per.ip={self._max_connections_per_ip}"
        if self.descriptors is not None and not self.descriptors.has_room(reserved=reserved):
            return f"what is kept for files of RLIMIT_NOFILE={self.descriptors.limit}"
        return None

    def opened(self, address: str) -> None:
        """Count a connection."""
        self._open[address] += 1
        if self.descriptors is not None:
            self.descriptors.opened()

    def closed(self, address: str) -> None:
        """Count it no more."""
        if self.descriptors is not None:
            self.descriptors.closed()
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
