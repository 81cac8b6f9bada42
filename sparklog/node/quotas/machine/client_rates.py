"""The rate of each client under one kind of quota, and its throttle time.

Rules kept:
- Clients that share a quota share its rate. A changed quota keeps the recorded rate.
- A client whose rate was forgotten is like a new client. So the rates of idle clients are dropped when there
  are many, since client ids are arbitrary.

Pure. Source: Kafka's ClientQuotaManager and ControllerMutationQuotaManager.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from sparklog.node.metadata.image import ClientQuotaEntity
from sparklog.node.quotas.machine.applicable_quotas import ClientLimits
from sparklog.node.rates import QuotaWindows, SampledRate, TokenBucket

_MANY: Final = 1_000


class _Quota(Protocol):
    bound: float

    def is_idle(self, now_ms: int) -> bool: ...


_SomeQuota = TypeVar("_SomeQuota", bound=_Quota)


class RateQuota:
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
        """The largest value within the bound when nothing was recorded before."""
        return self.bound * self._windows.burst_s

    def record(self, value: float, now_ms: int) -> int:
        """Count `value`; return the throttle time in milliseconds."""
        self._rate.record(value, now_ms)
        throttle_ms = self._rate.throttle_ms(self.bound, now_ms)
        if throttle_ms:
            self._throttled += 1
            self._throttled_ms += throttle_ms
        return throttle_ms

    def spend(self, value: float, now_ms: int) -> tuple[bool, int]:
        """Count `value` if the bound allows it; return whether it does, and the throttle time in ms.

        A value that exceeds the bound by itself is allowed when nothing else was recorded, and throttled
        afterwards. (Kafka always refuses it: a consumer never gets past a batch that is larger.)
        """
        is_first = self._rate.rate(now_ms) == 0
        throttle_ms = self.record(value, now_ms)
        if throttle_ms and not is_first:
            self._rate.record(-value, now_ms)
            return False, throttle_ms
        return True, throttle_ms

    def rate(self, now_ms: int) -> float:
        return self._rate.rate(now_ms)

    def take_throttle_ms(self) -> float:
        """Return the average throttle time since the last call, in milliseconds; 0 for none."""
        average_ms = self._throttled_ms / self._throttled if self._throttled else 0.0
        self._throttled = self._throttled_ms = 0
        return average_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether all samples have expired."""
        return self._rate.is_idle(now_ms)


class TokenQuota:
    """A bound on a rate, and the remaining tokens of the clients that share it."""

    __slots__ = ("_bucket", "bound")

    def __init__(self, windows: QuotaWindows, bound: float) -> None:
        self.bound = bound
        self._bucket = TokenBucket(windows)

    def record(self, value: float, now_ms: int) -> int:
        """Take `value` tokens, which may overdraw the bucket; return the throttle time in milliseconds."""
        self._bucket.record(value, self.bound, now_ms)
        return self.throttle_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time until tokens are available."""
        return self._bucket.throttle_ms(self.bound, now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether the bucket is full."""
        return self._bucket.is_idle(self.bound, now_ms)


class ClientQuotas(Generic[_SomeQuota]):
    def __init__(self, key: str, new_quota: Callable[[float], _SomeQuota]) -> None:
        self._key = key
        self._new_quota = new_quota
        self._limits = ClientLimits(key, {})
        self.shared: dict[tuple[str | None, str | None], _SomeQuota] = {}
        """The quotas in use, by user and client id; None stands for any."""
        self._found: dict[tuple[str, str], _SomeQuota | None] = {}
        self.limit_anybody = False

    def update(self, quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> None:
        self._limits = ClientLimits(self._key, quotas)
        self.limit_anybody = self._limits.limit_anybody
        self._found.clear()
        if not self.limit_anybody:
            self.shared.clear()

    def __len__(self) -> int:
        """Return the number of rates kept."""
        return len(self.shared)

    def of(self, user: str, client_id: str, now_ms: int) -> _SomeQuota | None:
        """Return the quota of a client, None if it is unlimited."""
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
        quota = self.shared.get(limit.shared_by)
        if quota is None:
            quota = self.shared[limit.shared_by] = self._new_quota(limit.bound)
        quota.bound = limit.bound
        return quota

    def _give_up_idle(self, now_ms: int) -> None:
        self._found.clear()
        for shared_by, quota in list(self.shared.items()):
            if quota.is_idle(now_ms):
                del self.shared[shared_by]


def rate_quotas(
    key: str,
    windows: QuotaWindows,
    new_rate: Callable[[QuotaWindows], SampledRate] = SampledRate,
) -> ClientQuotas[RateQuota]:
    return ClientQuotas(key, lambda bound: RateQuota(windows, bound, new_rate))


def token_quotas(key: str, windows: QuotaWindows) -> ClientQuotas[TokenQuota]:
    return ClientQuotas(key, lambda bound: TokenQuota(windows, bound))
