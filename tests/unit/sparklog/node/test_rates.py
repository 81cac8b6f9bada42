"""Rates in windows and token buckets: Kafka's numbers, and what they come to over a minute."""

import pytest

from sparklog.node.rates import MAX_THROTTLE_MS, QuotaWindows, SampledRate, SimpleRate, TokenBucket

WINDOWS = QuotaWindows(samples=11, window_ms=1000)


def test_rate_that_begins_counts_all_windows_but_one() -> None:
    """The first request of a client must not look like thousands a second."""
    rate = SampledRate(WINDOWS)
    rate.record(1000, 0)
    assert rate.rate(0) == 100
    assert rate.rate(500) == pytest.approx(1000 / 10.5)


def test_rate_of_a_steady_flow_is_the_flow() -> None:
    """Windows come and go, and what is measured stays."""
    rate = SampledRate(WINDOWS)
    for now_ms in range(0, 60_000, 100):
        rate.record(50, now_ms)
    assert rate.rate(60_000) == pytest.approx(500, rel=0.01)


def test_sample_is_forgotten_when_its_last_event_is_as_old_as_all_windows() -> None:
    """A sample that reaches into the windows counts whole, and the time it spans with it."""
    rate = SampledRate(WINDOWS)
    rate.record(1000, 0)
    rate.record(1000, 900)
    assert rate.rate(11_899) == pytest.approx(2000 * 1000 / 11_899)
    assert rate.rate(11_900) == 0
    assert rate.is_idle(11_900)


def test_throttle_time_brings_the_rate_down_to_the_bound() -> None:
    """O * W / (W + X) = T, for the window as long as it is."""
    rate = SampledRate(WINDOWS)
    rate.record(20_000, 0)
    assert rate.throttle_ms(2_000, 0) == 0
    rate.record(5_000, 0)
    assert rate.throttle_ms(2_000, 0) == 2_500
    assert rate.throttle_ms(2_500, 0) == 0


def test_throttle_time_is_never_longer_than_an_answer_can_say() -> None:
    """It would come out negative at the other end."""
    rate = SampledRate(WINDOWS)
    rate.record(1e18, 0)
    assert rate.throttle_ms(1, 0) == MAX_THROTTLE_MS


def test_what_is_taken_back_never_was() -> None:
    """An empty answer must not count for the records that it does not have."""
    rate = SampledRate(WINDOWS)
    rate.record(700, 0)
    rate.record(900, 100)
    rate.record(-900, 100)
    assert rate.rate(100) == pytest.approx(700 / 10.1)


def test_simple_rate_counts_only_the_time_there_was() -> None:
    """Replication has no burst: what is throttled is so from the first second."""
    rate = SimpleRate(WINDOWS)
    rate.record(1000, 0)
    assert rate.rate(100) == 1000
    assert rate.rate(4_000) == 250


def test_token_bucket_lets_a_burst_go_and_waits_for_what_was_overdrawn() -> None:
    """The example in Kafka's own documentation of it: quota 5, 100 windows, a burst of 560."""
    bucket = TokenBucket(QuotaWindows(samples=100, window_ms=1000))
    bucket.record(560, 5, 0)
    assert bucket.throttle_ms(5, 0) == 12_000
    assert bucket.throttle_ms(5, 11_999) > 0
    assert bucket.throttle_ms(5, 12_000) == 0
    assert not bucket.is_idle(5, 12_000)
    assert bucket.is_idle(5, 112_000)


@pytest.mark.parametrize("size", [16 << 10, 64 << 10, 1 << 20])
@pytest.mark.parametrize("bound", [5_000_000, 20_000_000])
@pytest.mark.parametrize("connections", [1, 3])
def test_producers_at_full_speed_get_what_they_may_have_over_a_minute(
    size: int, bound: int, connections: int
) -> None:
    """After the burst that a new client has; the sender hears its throttle time and sends again then."""
    rate = SampledRate(WINDOWS)
    may_send_ms = [0.0] * connections
    sent = 0
    while (now := min(may_send_ms)) < 90_000:
        sender = may_send_ms.index(now)
        rate.record(size, int(now))
        if now >= 30_000:
            sent += size
        # 200 MB/s for each, and half a millisecond from one request to the next.
        may_send_ms[sender] = now + 0.5 + size / 200_000 + rate.throttle_ms(bound, int(now))
    assert 0.92 * bound <= sent / 60 <= 1.05 * bound


@pytest.mark.parametrize("bound", [1e-9, 5e-324])
def test_throttle_time_of_the_smallest_bounds_is_the_longest(bound: float) -> None:
    """Any number above 0 is a quota; what divides by it must not end every request of its client."""
    rate, bucket = SampledRate(WINDOWS), TokenBucket(WINDOWS)
    rate.record(1000, 0)
    bucket.record(1000, bound, 0)
    assert rate.throttle_ms(bound, 0) == bucket.throttle_ms(bound, 0) == MAX_THROTTLE_MS
