"""Look-ups in the object store, one at a time for each key."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from sparklog.executor.remote_reads.loads import MAX_WAITING, REFUSED_MS, Loads
from sparklog.node.remote_log.object_store import (
    CorruptSegmentError,
    ObjectMissingError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sparklog.protocol.errors import ErrorCode, KafkaError


class LookUp:
    """A look-up that ends when the test says so, after the errors it is given."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        await self.may_end.wait()


def loads_at(now: list[int], retried_within_ms: int = 300) -> Loads:
    return Loads(lambda: now[0], retried_within_ms=retried_within_ms)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(bounded())


def test_load_wakes_all_that_wait_once_it_has_ended() -> None:
    """One look-up serves every reader of the same records; one that has left is not called."""

    async def test() -> None:
        loads, look_up = loads_at([0]), LookUp()
        woken: list[str] = []
        load = loads.begin("key", look_up)
        assert load is not None
        assert loads.get("key") is load

        def leave() -> None:
            woken.append("left")

        load.wait(lambda: woken.append("first"))
        load.wait(lambda: woken.append("second"))
        load.wait(leave)
        load.leave(leave)
        await asyncio.sleep(0)
        assert (woken, look_up.count) == ([], 1)
        look_up.may_end.set()
        await loads.until_ended(load)
        assert woken == ["first", "second"]
        assert load.ended
        assert loads.get("key") is None

    run(test)


def test_load_that_fails_for_a_moment_is_tried_again() -> None:
    """A store that is busy, and bytes that were damaged on their way, are no news for readers."""

    async def test() -> None:
        loads = loads_at([0])
        look_up = LookUp(StoreUnavailableError("503"), CorruptSegmentError("a page's CRC"))
        look_up.may_end.set()
        load = loads.begin("key", look_up)
        await loads.until_ended(load)
        assert (look_up.count, loads.get("key")) == (3, None)

    run(test)


@pytest.mark.parametrize(
    ("error", "error_code", "tries_many"),
    [
        (StoreUnavailableError("no route"), ErrorCode.kafka_storage_error, True),
        (StoreRefusedError("no permission"), ErrorCode.kafka_storage_error, False),
        (ObjectMissingError("gone"), ErrorCode.kafka_storage_error, False),
        (CorruptSegmentError("a page's CRC"), ErrorCode.corrupt_message, True),
        (OSError("no memory"), ErrorCode.kafka_storage_error, True),
        (RuntimeError("a mistake"), ErrorCode.unknown_server_error, False),
    ],
)
def test_load_that_fails_is_an_error_for_a_while(
    error: Exception, error_code: ErrorCode, tries_many: bool
) -> None:
    """Its readers are answered, with codes that clients retry; meanwhile the store is left alone."""

    async def test() -> None:
        now = [0]
        loads, look_up = loads_at(now, 120), LookUp(*[error] * 50)
        await loads.until_ended(loads.begin("key", look_up))
        assert (look_up.count > 1) == tries_many
        tried = look_up.count
        for now[0] in (0, REFUSED_MS - 1):
            with pytest.raises(KafkaError) as failed:
                loads.get("key")
            assert failed.value.error_code is error_code
        now[0] = REFUSED_MS
        assert loads.get("key") is None
        assert look_up.count == tried

    run(test)


def test_loads_wait_in_line_until_they_may_begin() -> None:
    """None overtakes another, or one that needs much memory would wait for ever."""

    async def test() -> None:
        loads, first, second = loads_at([0]), LookUp(), LookUp()
        room: list[str] = []
        first.may_end.set()
        second.may_end.set()
        first_load = loads.begin("first", first, lambda: bool(room))
        second_load = loads.begin("second", second)
        assert (loads.waiting_count, loads.running_count) == (2, 0)
        room.append("memory")
        # Found out by itself, also if nothing calls go_on.
        await loads.until_ended(first_load)
        await loads.until_ended(second_load)
        assert (first.count, second.count, loads.waiting_count) == (1, 1, 0)

    run(test)


def test_loads_that_wait_are_bounded() -> None:
    """Each takes memory, and clients come again."""

    async def test() -> None:
        loads = loads_at([0])
        begun = [loads.begin(number, LookUp(), lambda: False) for number in range(MAX_WAITING + 1)]
        assert [load is None for load in begun] == [*itertools.repeat(False, MAX_WAITING), True]
        await loads.close()

    run(test)


def test_loads_that_are_closed_end_what_waits_and_what_is_under_way() -> None:
    """A broker that shuts down waits for no store."""

    async def test() -> None:
        loads = loads_at([0])
        running, waiting = loads.begin("running", LookUp()), loads.begin("waiting", LookUp(), lambda: False)
        assert running is not None
        assert waiting is not None
        await asyncio.sleep(0)
        await loads.close()
        assert running.ended
        assert waiting.ended
        assert loads.begin("late", LookUp()) is None
        with pytest.raises(KafkaError, match="shuts down"):
            await loads.until_ended(None)

    run(test)
