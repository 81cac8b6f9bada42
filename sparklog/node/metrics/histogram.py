"""Distributions of values, at bounded memory and a fraction of a microsecond a value.

Bounds of buckets grow by a twelfth, so values are off by four per cent at most. Percentiles are those of the
last one to two minutes: the current counts less those at the start of the window. Kafka keeps a random sample
of the last five minutes instead. (A library's recorder, hdrhistogram's among them, costs microseconds a value
from Python.)
"""

import itertools
from bisect import bisect_left
from typing import Final, NamedTuple

from sparklog.node.metrics.names import QUANTILES

_BUCKETS_AN_OCTAVE: Final = 9
WINDOW_MS: Final = 60_000

SECONDS: Final = tuple(1e-5 * 2 ** (step / _BUCKETS_AN_OCTAVE) for step in range(24 * _BUCKETS_AN_OCTAVE))
"""Upper bounds of buckets for times, from 10 us to 160 s."""
BYTES: Final = tuple(16.0 * 2 ** (step / _BUCKETS_AN_OCTAVE) for step in range(27 * _BUCKETS_AN_OCTAVE))
"""Upper bounds of buckets for sizes, from 16 bytes to 2 GiB."""


class Summary(NamedTuple):
    value_count: int
    """Number of all values since the start."""
    total: float
    quantiles: tuple[float, ...]
    """Quantiles of the last one to two minutes, in the order of `QUANTILES`; 0 without values."""


class Histogram:
    """Values of one kind. The hot path may update `counts` and `total` itself, as `record` does."""

    def __init__(self, bounds: tuple[float, ...], unit: float = 1.0) -> None:
        """Make a bucket up to each of `bounds`; results are multiplied by `unit`."""
        self.bounds = bounds
        self.unit = unit
        self.counts = [0] * (len(bounds) + 1)
        """By bucket; the last one counts values above all bounds."""
        self.total = 0.0
        self._earlier = self._window_start = list(self.counts)
        self._window_ends_ms: int | None = None
        self._read_count = -1
        self._summary = Summary(0, 0.0, (0.0,) * len(QUANTILES))

    @property
    def reads_anew_ms(self) -> int:
        """The time until which `read` returns the same summary if nothing is recorded."""
        return 0 if self._window_ends_ms is None else self._window_ends_ms

    def record(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def read(self, now_ms: int, count: int | None = None) -> Summary:
        """Return the summary at `now_ms` of a monotonic clock.

        If `count` exceeds the number of recorded values, the missing values were 0.
        """
        recorded = sum(self.counts)
        if count is not None and count > recorded:
            self.counts[0] += count - recorded
            recorded = count
        rotates = self._window_ends_ms is None or now_ms >= self._window_ends_ms
        if recorded == self._read_count and not rotates:
            return self._summary
        quantiles = self._quantiles()
        if rotates:
            self._earlier, self._window_start = self._window_start, list(self.counts)
            self._window_ends_ms = now_ms + WINDOW_MS
        self._read_count = recorded
        self._summary = Summary(recorded, self.total * self.unit, quantiles)
        return self._summary

    def _quantiles(self) -> tuple[float, ...]:
        recent = [now - then for now, then in zip(self.counts, self._earlier, strict=True)]
        up_to = list(itertools.accumulate(recent))
        count = up_to[-1]
        if count == 0:
            return (0.0,) * len(QUANTILES)
        return tuple(
            self._middle(bisect_left(up_to, max(share * count, 1))) * self.unit for share in QUANTILES
        )

    def _middle(self, bucket: int) -> float:
        """Return the middle of a bucket; 0 for the first, whose values are too small to matter."""
        if bucket == 0:
            return 0.0
        if bucket == len(self.bounds):
            return self.bounds[-1]
        return (self.bounds[bucket - 1] + self.bounds[bucket]) / 2
