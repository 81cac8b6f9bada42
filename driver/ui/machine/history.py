"""The last 15 minutes of some metrics, for charts: ring buffers of one size.

A period without a value is a gap. The series of a broker that sends no more values ends with its last point.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

SAMPLE_MS: Final = 5_000
POINTS: Final = 180
"""15 minutes of them."""
MAX_SERIES: Final = 12
"""The lines of a chart that can be told apart."""


class Series(NamedTuple):
    """A line of a chart, the oldest point first; None is a gap."""

    name: str
    points: tuple[float | None, ...]


class History:
    """The charts' values, sampled every `SAMPLE_MS`."""

    def __init__(self) -> None:
        self._charts: dict[str, dict[str, deque[float | None]]] = {}
        self._samples = 0
        self.charts: Mapping[str, tuple[Series, ...]] = {}
        """By the chart's name; replaced by another object at each sample."""

    def sample(self, samples: Mapping[str, Mapping[str, float | None]]) -> None:
        for chart, values in samples.items():
            series = self._charts.setdefault(chart, {})
            for name in list(values)[:MAX_SERIES]:
                if name not in series and len(series) < MAX_SERIES:
                    series[name] = deque([None] * min(self._samples, POINTS), maxlen=POINTS)
        self._samples += 1
        for chart, series in self._charts.items():
            values = samples.get(chart, {})
            for name, points in list(series.items()):
                points.append(values.get(name))
                if all(point is None for point in points) and name not in values:
                    del series[name]
        self.charts = {chart: _lines(series.items()) for chart, series in self._charts.items()}


def _lines(series: Iterable[tuple[str, deque[float | None]]]) -> tuple[Series, ...]:
    return tuple(Series(name, tuple(points)) for name, points in sorted(series))
