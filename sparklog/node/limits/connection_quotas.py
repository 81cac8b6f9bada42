"""How many connections a broker takes, and how fast: over all of its listeners, and at each.

max.connections, max.connections.per.ip and its overrides, max.connection.creation.rate, the rates of single
addresses (KIP-612), and what its files leave of the file descriptors.

Order for the caller, all on one event loop: `exhausted` before a connection is taken, then `held_back_ms`,
`opened` when it is, `closed` once when it ends.

Source: Kafka's SocketServer.ConnectionQuotas.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.rates import QuotaWindows, SampledRate

_INT_MAX: Final = 2**31 - 1
_MANY: Final = 1_000
_NO_OVERRIDES: Final[Mapping[str, int]] = MappingProxyType({})


class ConnectionLimits(NamedTuple):
    """The bounds that a broker's configuration sets; the largest int is none."""

    max_connections: int = _INT_MAX
    max_connections_per_ip: int = _INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = _NO_OVERRIDES
    max_connection_creation_rate: int = _INT_MAX


class ListenerLimits(NamedTuple):
    """Bounds of one listener (`listener.name...`); the largest int is none."""

    max_connections: int = _INT_MAX
    max_connection_creation_rate: int = _INT_MAX


class ListenerQuota:
    """Bounds one listener's connections, the brokers' own not excepted.

    Order for the caller: as with `ConnectionQuotas`, beside it.
    """

    def __init__(
        self,
        limits: ListenerLimits = ListenerLimits(),  # noqa: B008  (it is immutable)
        *,
        windows: QuotaWindows = QuotaWindows(11, 1_000),  # noqa: B008
    ) -> None:
        self.limits = limits
        """May be replaced while connections are open."""
        self._window_ms = windows.window_ms
        self._rate = SampledRate(windows)

    def exhausted(self, open_count: int) -> str | None:
        """Return the quota that `open_count` connections exhaust, `None` if there is room."""
        limit = self.limits.max_connections
        return f"the listener's max.connections={limit}" if open_count >= limit else None

    def opened(self, now_ms: int) -> int:
        """Count a connection; return how many ms the listener must take no others."""
        bound = self.limits.max_connection_creation_rate
        if bound == _INT_MAX:
            return 0
        self._rate.record(1, now_ms)
        return min(self._rate.throttle_ms(bound, now_ms), self._window_ms)


class ConnectionQuotas:
    """Open connections, counted by address, and their rates."""

    def __init__(
        self,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  (it is immutable)
        *,
        windows: QuotaWindows = QuotaWindows(11, 1_000),  # noqa: B008
        descriptors: DescriptorBudget | None = None,
    ) -> None:
        """Share `descriptors` among all listeners of one process; without it descriptors are not counted."""
        self.descriptors = descriptors
        self.limits = limits
        """May be replaced while connections are open."""
        self.rate_of: Callable[[str], float | None] = lambda address: None
        """Connection rate of an address per second, `None` for no limit; may be replaced."""
        self._windows = windows
        self._open: Counter[str] = Counter()
        self._rate = SampledRate(windows)
        self._rates: dict[str, SampledRate] = {}
        self._many_rates = _MANY
        """Number of rates from which on idle ones are looked for."""

    def exhausted(self, address: str, *, reserved: bool) -> str | None:
        """Return the quota that leaves no room for one more connection of `address`, `None` if there is room.

        max.connections does not hold for a `reserved` listener: clients must not shut the brokers out that
        have a listener of their own. Its connections count all the same.
        """
        limits = self.limits
        if not reserved and self._open.total() >= limits.max_connections:
            return f"max.connections={limits.max_connections}"
        own = limits.max_connections_per_ip_overrides.get(address)
        if own is not None and self._open[address] >= own:
            return f"max.connections.per.ip.overrides={address}:{own}"
        if own is None and self._open[address] >= limits.max_connections_per_ip:
            return f"max.connections.per.ip={limits.max_connections_per_ip}"
        if self.descriptors is not None and not self.descriptors.has_room(reserved=reserved):
            return f"what is kept for files of RLIMIT_NOFILE={self.descriptors.limit}"
        return None

    def held_back_ms(self, address: str, now_ms: int) -> int:
        """Count a connection in its address's rate; return how many ms to delay its closing.

        0 if it may be taken. A refused connection does not count. It is closed late, or its client would make
        the next one at once.
        """
        bound = self.rate_of(address)
        if bound is None:
            return 0
        if len(self._rates) >= self._many_rates:
            self._rates = {each: rate for each, rate in self._rates.items() if not rate.is_idle(now_ms)}
            self._many_rates = max(_MANY, 2 * len(self._rates))  # or each connection looked at all of them
        rate = self._rates.setdefault(address, SampledRate(self._windows))
        rate.record(1, now_ms)
        held_back_ms = min(rate.throttle_ms(bound, now_ms), self._windows.window_ms)
        if held_back_ms:
            rate.record(-1, now_ms)
        return held_back_ms

    def opened(self, address: str, now_ms: int, *, reserved: bool) -> int:
        """Count a connection; return how many ms its listener must take no others.

        max.connection.creation.rate does not hold for a `reserved` listener either.
        """
        self._open[address] += 1
        if self.descriptors is not None:
            self.descriptors.opened()
        bound = self.limits.max_connection_creation_rate
        if reserved or bound == _INT_MAX:
            return 0
        self._rate.record(1, now_ms)
        return min(self._rate.throttle_ms(bound, now_ms), self._windows.window_ms)

    def closed(self, address: str) -> None:
        if self.descriptors is not None:
            self.descriptors.closed()
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
