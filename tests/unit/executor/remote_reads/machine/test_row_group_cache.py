"""Which row groups stay in memory, and which may be loaded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.executor.remote_reads.machine.row_group_cache import IDLE_MS, RowGroupCache


def cache_of(capacity_bytes: int, *keys: str) -> RowGroupCache[str, str]:
    """Return a cache with groups of 10 bytes, loaded at time 0."""
    cache: RowGroupCache[str, str] = RowGroupCache(capacity_bytes)
    for key in keys:
        assert cache.reserve(key, 10, 0, sending_bytes=0)
        cache.put(key, key.upper(), 10, 0)
    return cache


def test_cache_with_room_keeps_every_group() -> None:
    """Nothing is evicted without need."""
    cache = cache_of(30, "a", "b")
    assert cache.reserve("c", 10, 1, sending_bytes=0)
    cache.put("c", "C", 10, 1)
    assert [cache.get(key, 1) for key in "abcd"] == ["A", "B", "C", None]
    assert (cache.cached_bytes, cache.reserved_bytes) == (30, 0)


def test_cache_without_room_evicts_a_group_that_was_read_to_its_end() -> None:
    """A sequential reader does not come back, whoever used the others longer ago may."""
    cache = cache_of(30, "a", "b", "c")
    cache.read_to_end("b")
    assert cache.reserve("d", 10, 1, sending_bytes=0)
    assert ["b" in cache, "a" in cache, "c" in cache] == [False, True, True]


def test_cache_of_groups_that_are_being_read_lets_another_one_wait() -> None:
    """Evicting them would load each of them once a fetch: with more readers than room, the newest waits."""
    cache = cache_of(20, "a", "b")
    assert not cache.reserve("c", 10, IDLE_MS - 1, sending_bytes=0)
    cache.get("a", IDLE_MS - 1)
    assert cache.reserve("c", 10, IDLE_MS, sending_bytes=0)
    assert ["a" in cache, "b" in cache] == [True, False]


def test_cache_counts_what_is_loading_and_what_is_still_being_sent() -> None:
    """Their memory is taken as well, so the bound would not be one without them."""
    cache = cache_of(30, "a")
    assert cache.reserve("b", 10, 0, sending_bytes=0)
    assert not cache.reserve("c", 10, 0, sending_bytes=1)
    assert cache.reserve("c", 10, 0, sending_bytes=0)
    assert not cache.reserve("d", 10, 0, sending_bytes=0)
    cache.abandon("c")
    assert cache.reserve("d", 10, 0, sending_bytes=0)


def test_cache_lets_one_group_be_larger_than_all_of_it() -> None:
    """Its records could never be read otherwise. It takes the place of all others."""
    cache = cache_of(20, "a", "b")
    cache.read_to_end("a")
    assert not cache.reserve("large", 100, 0, sending_bytes=0)
    cache.read_to_end("b")
    assert not cache.reserve("large", 100, 0, sending_bytes=1)
    assert cache.reserve("large", 100, 0, sending_bytes=0)
    assert not cache.reserve("c", 10, 0, sending_bytes=0)


def test_cache_gives_a_read_ahead_only_room_that_no_reader_needs() -> None:
    """What a reader has not read yet is needed sooner than what it may read later."""
    cache = cache_of(20, "a", "b")
    assert not cache.reserve("c", 10, 10 * IDLE_MS, sending_bytes=0, is_read_ahead=True)
    cache.read_to_end("a")
    assert cache.reserve("c", 10, 0, sending_bytes=0, is_read_ahead=True)
    assert not cache_of(5).reserve("a", 10, 0, sending_bytes=0, is_read_ahead=True)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 12), st.booleans(), st.integers(0, 600)),
        max_size=40,
    )
)
def test_cache_never_takes_more_than_its_capacity_but_for_one_group(
    steps: list[tuple[str, int, bool, int]],
) -> None:
    """The broker's memory is bounded by it."""
    cache: RowGroupCache[str, int] = RowGroupCache(30)
    now_ms = 0
    for key, size_bytes, is_read, passed_ms in steps:
        now_ms += passed_ms
        if cache.get(key, now_ms) is None and cache.reserve(key, size_bytes, now_ms, sending_bytes=0):
            cache.put(key, size_bytes, size_bytes, now_ms)
        if is_read:
            cache.read_to_end(key)
        assert cache.reserved_bytes == 0
        assert cache.cached_bytes <= 30 or len(cache) == 1
