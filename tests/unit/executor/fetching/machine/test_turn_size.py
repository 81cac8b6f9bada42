"""How much a follower asks for, by the processor time that the last answers took."""

from sparklog.executor.fetching.machine.turn_size import LEAST_BYTES, MEASURED_BYTES, TURN_US, TurnSize

MOST = 10 << 20


def test_answers_that_are_appended_in_time_stay_as_large_as_configured() -> None:
    """Batches of 16 KiB cost a few microseconds each: the copy of a log needs few requests."""
    size = TurnSize(MOST, 1 << 20)
    size.took(MOST, TURN_US // 2)
    size.took(100_000, 1)
    assert (size.max_bytes, size.partition_max_bytes) == (MOST, 1 << 20)


def test_answer_that_takes_long_makes_the_next_one_fit_and_grow_again_when_it_is_cheap() -> None:
    """A third of a second without a turn for others is a third of a second without acknowledgements."""
    size = TurnSize(MOST, 1 << 20)
    size.took(5 << 20, 8 * TURN_US)
    assert (size.max_bytes, size.partition_max_bytes) == (640 << 10, 160 << 10)
    size.took(600 << 10, 2 * TURN_US)
    assert size.max_bytes == 300 << 10
    # One that was not full says nothing of a larger one.
    size.took(30 << 10, TURN_US // 100)
    assert size.max_bytes == 300 << 10
    size.took(300 << 10, TURN_US // 8)
    assert size.max_bytes == 600 << 10
    for _ in range(10):
        size.took(size.max_bytes, 1)
    assert (size.max_bytes, size.partition_max_bytes) == (MOST, 1 << 20)


def test_answers_with_one_lagging_partition_grow_again_when_they_are_cheap() -> None:
    """A partition fills its share alone: one slow moment would have made the rest of its copy slow."""
    size = TurnSize(MOST, 1 << 20)
    size.took(1 << 20, 4 * TURN_US)
    assert (size.max_bytes, size.partition_max_bytes) == (256 << 10, 64 << 10)
    for _ in range(20):
        size.took(size.partition_max_bytes, TURN_US // 100)
    assert (size.max_bytes, size.partition_max_bytes) == (MOST, 1 << 20)


def test_answers_never_become_so_small_that_they_are_not_measured() -> None:
    """Else one slow moment would have made all later copies slow."""
    size = TurnSize(MOST, 1 << 20)
    size.took(1_000, 1_000 * TURN_US)
    assert size.max_bytes == LEAST_BYTES
    assert size.partition_max_bytes >= MEASURED_BYTES


def test_configured_bounds_are_kept_though_they_are_smaller() -> None:
    """They are an administrator's."""
    size = TurnSize(50_000, 2_000)
    size.took(50_000, 10 * TURN_US)
    assert (size.max_bytes, size.partition_max_bytes) == (50_000, 2_000)
