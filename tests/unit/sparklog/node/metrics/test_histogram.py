import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.metrics.histogram import SECONDS, WINDOW_MS, Histogram
from sparklog.node.metrics.names import QUANTILES

SHARES = tuple(QUANTILES)


@given(st.lists(st.floats(SECONDS[0] * 1.1, SECONDS[-1]), min_size=1, max_size=200))
def test_histogram_quantiles_are_within_four_percent_of_the_values(values: list[float]) -> None:
    """A percentile that an alarm compares has to be the requests', not the buckets'."""
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.record(value)
    summary = histogram.read(0)
    ordered = sorted(values)
    for share, quantile in zip(SHARES, summary.quantiles, strict=True):
        exact = next(each for rank, each in enumerate(ordered, 1) if rank >= max(share * len(values), 1))
        assert quantile == pytest.approx(exact, rel=0.041)
    assert (summary.value_count, summary.total) == (len(values), pytest.approx(sum(values)))


def test_histogram_forgets_what_is_two_windows_old() -> None:
    """One slow minute in the morning must not be the p99 of the whole day."""
    histogram = Histogram(SECONDS, unit=1000)
    histogram.record(10.0)
    assert histogram.read(0).quantiles[-1] == pytest.approx(10_000, rel=0.04)
    assert histogram.read(WINDOW_MS - 1).quantiles[-1] == pytest.approx(10_000, rel=0.04)
    assert histogram.read(2 * WINDOW_MS).quantiles[-1] == pytest.approx(10_000, rel=0.04)
    assert histogram.read(3 * WINDOW_MS).quantiles == (0.0,) * len(SHARES)
    assert histogram.read(3 * WINDOW_MS).value_count == 1


def test_histogram_counts_values_beyond_its_bounds_in_the_outermost_buckets() -> None:
    """Neither an absurd value nor none at all may fail a request."""
    histogram = Histogram(SECONDS)
    histogram.record(0.0)
    histogram.record(1e9)
    assert histogram.read(0).quantiles[0] == 0.0
    assert histogram.read(0).quantiles[-1] == SECONDS[-1]


def test_histogram_takes_values_that_were_not_recorded_for_zeros() -> None:
    """Most requests wait for nothing, and are not to pay for saying so."""
    histogram = Histogram(SECONDS)
    histogram.record(1.0)
    summary = histogram.read(0, count=4)
    assert summary.value_count == 4
    assert summary.quantiles[0] == 0.0
    assert summary.quantiles[-1] == pytest.approx(1.0, rel=0.04)
    assert histogram.read(1, count=5).value_count == 5
