"""Rates measured over a few windows, and the throttle time of a rate above its bound.

A rate is the sum of the last windows over their time span. A window begins with a recorded value, so an
unused rate costs nothing. A new rate assumes that nothing came before: the allowance of all windows but one
may come at once.

Pure: times are arguments, in milliseconds of any one clock.

Source: Kafka's org.apache.kafka.common.metrics.stats Rate, SimpleRate, SampledStat and TokenBucket, and
QuotaUtils. A sample, there and here, is the content of one window.
"""

from collections import deque
from typing import Final, NamedTuple

MAX_THROTTLE_MS: Final = 2**31 - 1
"""The longest throttle time that a response can carry."""


class QuotaWindows(NamedTuple):
    """The number and length of the windows of a rate."""

    samples: int
    window_ms: int

    @property
    def burst_s(self) -> float:
        """The seconds' worth that may come at once when nothing came before."""
        return (self.samples - 1) * self.window_ms / 1000


class _Sample:
    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


class SampledRate:
    """The sum of recorded values per second."""

    __slots__ = ("_samples", "_total", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        """Oldest first; one more than windows, since the oldest may reach into them."""
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`; a negative value takes back an earlier one."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.window_ms:
            if len(samples) > self._windows.samples:
                self._total -= samples.popleft().value
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.value += value
        self._total += value
        sample.last_event_ms = now_ms

    def rate(self, now_ms: int) -> float:
        self._forget(now_ms)
        return self._total * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the pause after which the rate has fallen to `bound`, in milliseconds.

        >>> rate = SampledRate(QuotaWindows(samples=11, window_ms=1000))
        >>> rate.record(15_000, now_ms=0)
        >>> rate.rate(now_ms=0), rate.throttle_ms(1_000, now_ms=0)
        (1500.0, 5000)
        """
        rate = self.rate(now_ms)
        if rate <= bound:
            return 0
        return round(min((rate - bound) / bound * self._span_ms(now_ms), MAX_THROTTLE_MS))

    def is_idle(self, now_ms: int) -> bool:
        """Whether all samples have expired."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        expire_ms = self._windows.samples * self._windows.window_ms
        samples = self._samples
        while samples and now_ms - samples[0].last_event_ms >= expire_ms:
            self._total -= samples.popleft().value
        if not samples:
            self._total = 0.0  # drops rounding errors

    def _span_ms(self, now_ms: int) -> int:
        """Return the time span of the samples: at least that of all windows but the last."""
        window_ms = self._windows.window_ms
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self._windows.samples - 1 - elapsed_ms // window_ms
        return max(elapsed_ms + max(missing, 0) * window_ms, 1)


class SimpleRate(SampledRate):
    """A rate over the time since the oldest sample, even if short; the first window counts in full."""

    __slots__ = ()

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        return max(elapsed_ms, self._windows.window_ms)


class TokenBucket:
    """Tokens that refill at a steady rate, up to those of all windows; one request may overdraw them.

    Unlike a rate it does not wait for a large sample to expire.
    """

    __slots__ = ("_last_update_ms", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        """None is a full bucket."""
        self._last_update_ms = 0

    def record(self, value: float, bound: float, now_ms: int) -> None:
        """Take `value` tokens; `bound` tokens refill a second."""
        self._tokens = self._refilled(bound, now_ms) - value
        self._last_update_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the time in milliseconds until the bucket is no longer overdrawn."""
        tokens = self._refilled(bound, now_ms)
        return 0 if tokens >= 0 else round(min(-tokens / bound * 1000, MAX_THROTTLE_MS))

    def is_idle(self, bound: float, now_ms: int) -> bool:
        """Whether the bucket is full, as if nothing had been taken from it."""
        return self._refilled(bound, now_ms) >= self._burst(bound)

    def _refilled(self, bound: float, now_ms: int) -> float:
        burst = self._burst(bound)
        if self._tokens is None:
            return burst
        return min(burst, self._tokens + bound * (now_ms - self._last_update_ms) / 1000)

    def _burst(self, bound: float) -> float:
        return self._windows.samples * self._windows.window_ms / 1000 * bound
