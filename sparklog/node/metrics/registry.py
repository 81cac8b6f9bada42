"""The registry of one process's instruments, which reads all of them at once.

Counters are plain numbers that the hot path adds to and that a source reports; a histogram is requested once
and kept. A gauge is a function that runs when metrics are read, so it must not search long lists. Metrics of
topics or connections, which come and go, are reported by a source, which bounds itself. Belongs to one event
loop; nothing is locked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from sparklog.node.metrics.histogram import Histogram, Summary
from sparklog.node.metrics.names import COUNT, MEAN, QUANTILES, Kind, Metric, MetricName

_HISTOGRAMS_A_PART: Final = 16
"""Each takes some 20 us to read, if a value was recorded since the last time."""


class Sample(NamedTuple):
    name: MetricName
    """Name of a meter with the attribute Count; a histogram's attributes follow from its summary."""
    kind: Kind
    value: float | Summary


Source: TypeAlias = Callable[[int], Iterable[Sample]]
"""Returns the samples at a time of the monotonic clock in milliseconds."""


class MetricRegistry:
    def __init__(self) -> None:
        self._gauges: dict[MetricName, Callable[[], float | None]] = {}
        self._histograms: dict[MetricName, Histogram] = {}
        self._sources: list[Source] = []

    def histogram(
        self, metric: Metric, bounds: tuple[float, ...], unit: float = 1.0, **tags: str
    ) -> Histogram:
        """Return the histogram of that name, the same one each time; see `Histogram`."""
        assert metric.kind is Kind.HISTOGRAM
        name = metric.of(**tags)
        histogram = self._histograms.get(name)
        if histogram is None:
            histogram = self._histograms[name] = Histogram(bounds, unit)
        return histogram

    def gauge(self, metric: Metric, read: Callable[[], float | None], **tags: str) -> None:
        """Register the function of a gauge, in place of an earlier one; it returns None for no sample."""
        assert metric.kind is Kind.GAUGE
        self._gauges[metric.of(**tags)] = read

    def add_source(self, source: Source) -> None:
        self._sources.append(source)

    def read_in_parts(self, now_ms: int) -> Iterator[Sequence[Sample]]:
        """Yield all samples at `now_ms` of the monotonic clock, in parts.

        Reading everything takes milliseconds; the caller may yield to the loop between parts. Instruments
        registered after the first part are not read.
        """
        gauges, histograms = list(self._gauges.items()), list(self._histograms.items())
        sources = list(self._sources)
        yield [Sample(name, Kind.GAUGE, value) for name, read in gauges if (value := read()) is not None]
        for first in range(0, len(histograms), _HISTOGRAMS_A_PART):
            yield [
                Sample(name, Kind.HISTOGRAM, histogram.read(now_ms))
                for name, histogram in histograms[first : first + _HISTOGRAMS_A_PART]
            ]
        for source in sources:
            yield list(source(now_ms))

    def snapshot(self, now_ms: int) -> Mapping[MetricName, float]:
        """Return all samples at `now_ms` of the monotonic clock."""
        return values_of_samples(sample for part in self.read_in_parts(now_ms) for sample in part)


def values_of_samples(samples: Iterable[Sample]) -> dict[MetricName, float]:
    """Return the single values of samples: a histogram has one for each of its attributes."""
    values: dict[MetricName, float] = {}
    for name, _, value in samples:
        if not isinstance(value, Summary):
            values[name] = value
            continue
        group, type_, name_, tags, _ = name
        values[MetricName(group, type_, name_, tags, COUNT)] = value.value_count
        values[MetricName(group, type_, name_, tags, MEAN)] = (
            value.total / value.value_count if value.value_count else 0.0
        )
        for attribute, quantile in zip(QUANTILES.values(), value.quantiles, strict=True):
            values[MetricName(group, type_, name_, tags, attribute)] = quantile
    return values
