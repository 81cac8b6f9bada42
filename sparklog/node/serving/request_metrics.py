"""Metrics of requests by API, as Kafka's RequestMetrics: the dispatcher alone measures.

The total time is from a request's last byte until its response's bytes exist. Local time is the loop's work
on the request; the rest is remote: waiting for followers, threads and other requests' turns, and the work of
a coroutine. The time in a socket's buffer, of the request before and of the response after, is not measured
(Kafka's RequestQueueTimeMs and ResponseSendTimeMs).

Fetches are measured as FetchConsumer or FetchFollower: one waits for records, the other is part of every
produce. Every request pays for this: it only adds to lists and numbers.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sparklog.node.metrics import network
from sparklog.node.metrics.histogram import BYTES, SECONDS, Histogram
from sparklog.node.metrics.names import Kind, Metric
from sparklog.node.metrics.registry import Sample
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode

FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"
_MS: Final = 1000.0


class ApiMetrics:
    """The requests of one kind that were answered since the process began; readable at any time."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Kafka's tag `request`."""
        self.versions: defaultdict[int, int] = defaultdict(int)
        """Answered requests by version; those that failed included."""
        self.errors: defaultdict[ErrorCode, int] = defaultdict(int)
        """Error codes of whole responses and of their single items."""
        self.total_s = 0.0
        self.local_s = 0.0
        self.throttle_time = Histogram(SECONDS, _MS)
        """Throttle times of throttled requests only."""
        self.response_queue_time = Histogram(SECONDS, _MS)
        """Queue times of responses that had to wait."""
        total_time, local_time, remote_time = (Histogram(SECONDS, _MS) for _ in range(3))
        sizes = Histogram(BYTES)
        self._total_bytes = 0
        self._total_counts = total_time.counts
        self._local_counts = local_time.counts
        self._remote_counts = remote_time.counts
        self._bytes_counts = sizes.counts
        self._histograms: Mapping[Metric, Histogram] = {
            network.TOTAL_TIME: total_time,
            network.LOCAL_TIME: local_time,
            network.REMOTE_TIME: remote_time,
            network.THROTTLE_TIME: self.throttle_time,
            network.RESPONSE_QUEUE_TIME: self.response_queue_time,
            network.REQUEST_BYTES: sizes,
        }
        self._names = {metric: metric.of(request=name) for metric in self._histograms}
        self._samples: Sequence[Sample] = ()
        self._samples_count = 0
        self._samples_until_ms = 0

    @property
    def count(self) -> int:
        return sum(self.versions.values())

    @property
    def remote_s(self) -> float:
        return self.total_s - self.local_s

    def answered(
        self, version: int, request_bytes: int, total_s: float, local_s: float | None, throttle_s: float
    ) -> None:
        """Count one request; `local_s` is None if it did not wait, and local time is the total.

        Does itself what `Histogram.record` does: four calls would cost as much as all the rest.
        """
        self.versions[version] += 1
        self._bytes_counts[bisect_left(BYTES, request_bytes)] += 1
        self._total_bytes += request_bytes
        bucket = bisect_left(SECONDS, total_s)
        self._total_counts[bucket] += 1
        self.total_s += total_s
        if local_s is None:
            self._local_counts[bucket] += 1
            self.local_s += total_s
        else:
            self._local_counts[bisect_left(SECONDS, local_s)] += 1
            self._remote_counts[bisect_left(SECONDS, total_s - local_s)] += 1
            self.local_s += local_s
        if throttle_s:
            self.throttle_time.record(throttle_s)

    def samples(self, now_ms: int) -> Sequence[Sample]:
        """Return the samples, the cached ones if no request has come since."""
        count = self.count
        if count == self._samples_count and now_ms < self._samples_until_ms:
            return self._samples
        name = self.name
        samples = [
            Sample(network.REQUESTS.of(request=name, version=str(version)), Kind.METER, answered)
            for version, answered in tuple(self.versions.items())
        ]
        for code, times in tuple(self.errors.items()):
            error = "NONE" if code is ErrorCode.none else code.name.upper()
            samples.append(Sample(network.ERRORS.of(request=name, error=error), Kind.METER, times))
        histograms = self._histograms
        histograms[network.TOTAL_TIME].total = self.total_s
        histograms[network.LOCAL_TIME].total = self.local_s
        histograms[network.REMOTE_TIME].total = self.remote_s
        histograms[network.REQUEST_BYTES].total = float(self._total_bytes)
        for metric, histogram in histograms.items():
            samples.append(Sample(self._names[metric], Kind.HISTOGRAM, histogram.read(now_ms, count)))
        self._samples, self._samples_count = samples, count
        self._samples_until_ms = min(histogram.reads_anew_ms for histogram in histograms.values())
        return samples


class RequestMetrics:
    def __init__(self) -> None:
        self._by_name: dict[str, ApiMetrics] = {}

    def of(self, name: str) -> ApiMetrics:
        """Return the metrics under Kafka's name of a request, always the same object."""
        metrics = self._by_name.get(name)
        if metrics is None:
            metrics = self._by_name[name] = ApiMetrics(name)
        return metrics

    @property
    def asked_count(self) -> int:
        """The number of answered requests, without the fetches of followers, which an idle broker has too."""
        return sum(metrics.count for name, metrics in self._by_name.items() if name != FETCH_FOLLOWER)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield the samples of APIs that have had a request."""
        for metrics in tuple(self._by_name.values()):  # a thread reads, and the loop adds
            if metrics.versions:
                yield from metrics.samples(now_ms)


def kind_of_fetch(body: Any) -> str:
    """Return the name under which a Fetch is measured."""
    state = getattr(body, "replica_state", None)
    return FETCH_CONSUMER if (body if state is None else state).replica_id < 0 else FETCH_FOLLOWER


KINDS: Final[Mapping[ApiKey, Callable[[Any], str]]] = {ApiKey.FETCH: kind_of_fetch}
"""Name under which a request is measured, where an API has more than one."""


def api_name(api_key: ApiKey) -> str:
    """Return Kafka's name of an API.

    >>> api_name(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    'OffsetForLeaderEpoch'
    """
    return "".join(part.capitalize() for part in api_key.name.split("_"))
