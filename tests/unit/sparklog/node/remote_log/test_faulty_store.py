"""The faults that tests of the tier rely on: each does to a caller what a cloud does."""

import asyncio

import pytest

from sparklog.node.remote_log.object_store import StoreError, StoreRefusedError, StoreUnavailableError
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults


async def outcomes(store: FaultyStore, calls: int = 30) -> list[str]:
    """Return the outcome of creating many objects."""
    found = []
    for number in range(calls):
        try:
            await store.create(str(number), b"")
        except StoreError as error:
            found.append(str(error))
        else:
            found.append("created")
    return found


def test_faults_are_the_same_for_a_seed_and_others_for_another() -> None:
    """A simulation that failed is repeated by its seed."""
    faults = StoreFaults(failure_rate=0.3, lost_reply_rate=0.3)
    runs = [asyncio.run(outcomes(FaultyStore(MemoryStore(), faults, seed))) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) > 3


def test_lost_reply_has_written_and_a_failure_has_not() -> None:
    """The caller sees the same error for both, as over a network."""

    async def scenario() -> None:
        inner = MemoryStore()
        with pytest.raises(StoreUnavailableError):
            await FaultyStore(inner, StoreFaults(lost_reply_rate=1), seed=0).create("lost", b"")
        with pytest.raises(StoreUnavailableError):
            await FaultyStore(inner, StoreFaults(failure_rate=1), seed=0).create("failed", b"")
        assert list(inner.objects) == ["lost"]

    asyncio.run(scenario())


def test_store_goes_away_and_comes_back() -> None:
    """A bucket may be gone for a minute, and permissions until somebody gives them back."""

    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), StoreFaults(), seed=0)
        store.is_gone = True
        with pytest.raises(StoreUnavailableError):
            await store.create("a", b"")
        store.is_gone, store.is_refused = False, True
        with pytest.raises(StoreRefusedError):
            await store.create("a", b"")
        store.is_refused = False
        await store.create("a", b"")
        assert store.calls == [("create", "a")] * 3

    asyncio.run(scenario())


def test_late_list_lacks_new_objects_only() -> None:
    """An object that was written long ago is always listed."""

    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), StoreFaults(unlisted_rate=1, newest=2), seed=0)
        for number in range(5):
            await store.create(f"segments/{number}", b"")
        assert [found.name async for found in store.list("segments")] == [
            "segments/0",
            "segments/1",
            "segments/2",
        ]

    asyncio.run(scenario())


def test_latency_is_waited_for_by_the_given_clock() -> None:
    """A simulation's time is not the wall clock's."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), StoreFaults(latency_s=(4, 6)), seed=0, sleep=sleep)
        await store.create("a", b"")

    asyncio.run(scenario())
    assert len(waited) == 2, "on the way there and on the way back"
    assert all(4 <= seconds <= 6 for seconds in waited)
