"""The quotas of one node's clients: the cost of each request, and the throttle time of its client.

A Produce costs its bytes when it arrives, a Fetch its records when they are read (`consumer`), and every
request its processing time when it is answered. Requests of driver and brokers are free: followers would
leave the ISR. A Produce without an answer is not charged for its time.

The bytes of producers are measured over the elapsed time (`SimpleRate`), so that a producer has its quota
from its first second on. Kafka assumes that nothing came in the ten seconds before: ten seconds' worth goes
in at once, then nothing for as long, and so on, which is up to a fifth more than the quota over 40 s.

Order for the caller: `update` when quotas change; `meter` once for each request (as `Admission.meter`).

Source: Kafka's ClientQuotaManager, ClientRequestQuotaManager, and KafkaApis where it throttles; KIP-219.
"""

from collections.abc import Callable, Iterator
from heapq import nlargest
from operator import itemgetter
from typing import Final

from sparklog.node.clocks import monotonic_ms
from sparklog.node.config.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.quotas import BYTES_CONSUMED, BYTES_PRODUCED, REQUEST_TIME, THROTTLE_TIMES
from sparklog.node.metrics.registry import Sample
from sparklog.node.quotas.machine.client_rates import RateQuota, rate_quotas
from sparklog.node.rates import QuotaWindows, SimpleRate
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey

_ACKS_NONE: Final = 0
_SHOWN: Final = 50
"""The most clients that metrics are reported of, since client ids are arbitrary."""


class RequestMeter:
    __slots__ = ("_charged_s", "_max_throttle_ms", "_now_ms", "_times", "throttle_ms")

    def __init__(
        self, times: RateQuota | None, throttle_ms: int, max_throttle_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self.throttle_ms = throttle_ms
        """The throttle time for its arrival."""
        self._times = times
        self._max_throttle_ms = max_throttle_ms
        self._now_ms = now_ms
        self._charged_s = 0.0

    def worked(self, worked_s: float) -> int:
        """Charge the processing time so far; return the throttle time in milliseconds."""
        times = self._times
        if times is None:
            return 0
        percents = 100 * (worked_s - self._charged_s)
        self._charged_s = worked_s
        return min(times.record(percents, self._now_ms()), self._max_throttle_ms)


class RequestQuotas:
    """The quotas of all clients. Belongs to one event loop."""

    def __init__(self, windows: QuotaWindows, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._window_ms = windows.window_ms
        self._produced = rate_quotas(PRODUCER_BYTE_RATE, windows, SimpleRate)
        self._consumed = rate_quotas(CONSUMER_BYTE_RATE, windows)
        self._times = rate_quotas(REQUEST_PERCENTAGE, windows)
        self._limit_anybody = False

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.changed_client_quotas:
            for quotas in (self._produced, self._consumed, self._times):
                quotas.update(image.client_quotas)
            self._limit_anybody = self._produced.limit_anybody or self._times.limit_anybody

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield the use of quotas by limited clients, of each kind the `_SHOWN` highest rates."""
        for quotas, had in (
            (self._produced, BYTES_PRODUCED),
            (self._consumed, BYTES_CONSUMED),
            (self._times, REQUEST_TIME),
        ):
            rates = ((quota.rate(now_ms), shared_by, quota) for shared_by, quota in quotas.shared.items())
            for rate, (user, client_id), quota in nlargest(_SHOWN, rates, key=itemgetter(0)):
                tags = {"user": user or "", "client-id": client_id or ""}
                throttle_time = THROTTLE_TIMES[had.type].of(**tags)
                yield Sample(had.of(**tags), Kind.GAUGE, rate)
                yield Sample(throttle_time, Kind.GAUGE, quota.take_throttle_ms())

    def meter(self, request: Request) -> RequestMeter | None:
        """Charge the arrival of a request; return None if its client is unlimited."""
        if not self._limit_anybody:
            return None
        api_key, body = request.api_key, request.body
        if request.principal is CLUSTER_PRINCIPAL:
            return None
        user, client_id = request.principal.name, request.client_id or ""
        now_ms = self._now_ms()
        times = self._times.of(user, client_id, now_ms)
        throttle_ms = 0
        if api_key is ApiKey.PRODUCE:
            produced = self._produced.of(user, client_id, now_ms)
            if produced is not None:
                throttle_ms = produced.record(len(request.frame), now_ms)
            if body.acks == _ACKS_NONE:
                times = None
        if times is None and not throttle_ms:
            return None
        return RequestMeter(times, throttle_ms, self._window_ms, self._now_ms)

    def consumer(self, request: Request) -> RateQuota | None:
        """Return the quota on the records of a consumer, None if it is unlimited."""
        if not self._consumed.limit_anybody:
            return None
        return self._consumed.of(request.principal.name, request.client_id or "", self._now_ms())
