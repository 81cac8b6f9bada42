"""What each client has had of one kind of quota, and how long he is to wait once it was too much.

Rules kept:
- Who shares a quota shares its rate. A quota that changes leaves what was had as it is.
- A client whose rate has been forgotten is as one who was never there. So what is kept of idle clients is
  given up when there are many: client ids are for anybody to choose.

Pure. Source: Kafka's ClientQuotaManager and ControllerMutationQuotaManager.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from sparklog.metadata.image import ClientQuotaEntity
from sparklog.quotas.machine.limits import ClientLimits
from sparklog.rates import QuotaWindows, SampledRate, TokenBucket

_MANY: Final = 1_000


class _Quota(Protocol):
    bound: float

    def is_idle(self, now_ms: int) -> bool: ...


_SomeQuota = TypeVar("_SomeQuota", bound=_Quota)


class RateQuota:
    """A bound on a rate, and the rate of those who share it."""

    __slots__ = ("_rate", "_throttled", "_throttled_ms", "_windows", "bound")

    def __init__(
        self, windows: QuotaWindows, bound: float, new_rate: Callable[[QuotaWindows], SampledRate]
    ) -> None:
        self.bound = bound
        self._windows = windows
        self._rate = new_rate(windows)
        self._throttled = self._throttled_ms = 0

    @property
    def most_at_once(self) -> float:
        """What goes within the bound if nothing went before; more can't."""
        return self.bound * self._windows.burst_s

    def record(self, value: float, now_ms: int) -> int:
        """Count `value`; return how long to wait."""
        self._rate.record(value, now_ms)
        throttle_ms = self._rate.throttle_ms(self.bound, now_ms)
        if throttle_ms:
            self._throttled += 1
            self._throttled_ms += throttle_ms
        return throttle_ms

    def spend(self, value: float, now_ms: int) -> tuple[bool, int]:
        """Count `value` where it may be had now; return whether it may, and how long to wait.

        What alone is more than may be had at once may be had when nothing else was, and is waited for
        afterwards. (Kafka refuses it for ever: a consumer never gets past a batch that is larger.)
        """
        is_first = self._rate.rate(now_ms) == 0
        throttle_ms = self.record(value, now_ms)
        if throttle_ms and not is_first:
            self._rate.record(-value, now_ms)
            return False, throttle_ms
        return True, throttle_ms

    def rate(self, now_ms: int) -> float:
        """Return what is had a second."""
        return self._rate.rate(now_ms)

    def take_throttle_ms(self) -> float:
        """Return how long each wait was that was told since this was asked last, on average; 0 for none."""
        average_ms = self._throttled_ms / self._throttled if self._throttled else 0.0
        self._throttled = self._throttled_ms = 0
        return average_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is known of it any more."""
        return self._rate.is_idle(now_ms)


class TokenQuota:
    """A bound on a rate, and the tokens that are left to those who share it."""

    __slots__ = ("_bucket", "bound")

    def __init__(self, windows: QuotaWindows, bound: float) -> None:
        self.bound = bound
        self._bucket = TokenBucket(windows)

    def record(self, value: float, now_ms: int) -> int:
        """Take `value` tokens, whether or not there are so many; return how long to wait."""
        self._bucket.record(value, self.bound, now_ms)
        return self.throttle_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Return how long to wait until tokens may be taken."""
        return self._bucket.throttle_ms(self.bound, now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as if no token had ever been taken."""
        return self._bucket.is_idle(self.bound, now_ms)


class ClientQuotas(Generic[_SomeQuota]):
    """One kind of quota for all clients of a node."""

    def __init__(self, key: str, new_quota: Callable[[float], _SomeQuota]) -> None:
        self._key = key
        self._new_quota = new_quota
        self._limits = ClientLimits(key, {})
        self._shared: dict[tuple[str | None, str | None], _SomeQuota] = {}
        self._found: dict[tuple[str, str], _SomeQuota | None] = {}

    def __bool__(self) -> bool:
        """Whether anybody is limited."""
        return bool(self._limits)

    def update(self, quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> None:
        """Have these hold from now on."""
        self._limits = ClientLimits(self._key, quotas)
        self._found.clear()
        if not self._limits:
            self._shared.clear()

    def __len__(self) -> int:
        """How many rates are kept."""
        return len(self._shared)

    @property
    def shared(self) -> Mapping[tuple[str | None, str | None], _SomeQuota]:
        """Those of which something is known, by user and client id, of which one may be any."""
        return self._shared

    def of(self, user: str, client_id: str, now_ms: int) -> _SomeQuota | None:
        """Return what holds for a client, `None` if nothing does."""
        found = self._found.get((user, client_id))
        if found is None and (user, client_id) not in self._found:
            if len(self._found) >= _MANY:
                self._give_up_idle(now_ms)
            found = self._found[user, client_id] = self._find(user, client_id)
        return found

    def _find(self, user: str, client_id: str) -> _SomeQuota | None:
        limit = self._limits.limit(user, client_id)
        if limit is None:
            return None
        quota = self._shared.get(limit.shared_by)
        if quota is None:
            quota = self._shared[limit.shared_by] = self._new_quota(limit.bound)
        quota.bound = limit.bound
        return quota

    def _give_up_idle(self, now_ms: int) -> None:
        self._found.clear()
        for shared_by, quota in list(self._shared.items()):
            if quota.is_idle(now_ms):
                del self._shared[shared_by]


def rate_quotas(
    key: str,
    windows: QuotaWindows,
    new_rate: Callable[[QuotaWindows], SampledRate] = SampledRate,
) -> ClientQuotas[RateQuota]:
    """Return quotas by rates; `new_rate` measures what each client has."""
    return ClientQuotas(key, lambda bound: RateQuota(windows, bound, new_rate))


def token_quotas(key: str, windows: QuotaWindows) -> ClientQuotas[TokenQuota]:
    """Return quotas by tokens."""
    return ClientQuotas(key, lambda bound: TokenQuota(windows, bound))
