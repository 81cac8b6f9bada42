"""Calls of catalogues that do not answer."""

import asyncio
import logging
import threading

import pytest

from sparklog.driver.controller.tables.catalog_threads import MOST_CALLS, CatalogCall, CatalogThreads
from sparklog.driver.controller.tables.table_errors import CallGivenUpError, CatalogSilentError
from tests.unit.executor.brokers import until


def test_calls_without_an_answer_leave_room_for_others() -> None:
    """Four of them would stop the tables of all topics."""
    end = threading.Event()

    async def play() -> None:
        threads = CatalogThreads(silence_s=0.05)
        silent = [threads.call("t", lambda _: end.wait()) for _ in range(MOST_CALLS)]
        found = await asyncio.gather(*silent, return_exceptions=True)
        assert [type(each) for each in found] == [CatalogSilentError] * MOST_CALLS
        assert await threads.call("u", lambda _: 7) == 7
        assert threads.given_up == MOST_CALLS

    try:
        asyncio.run(asyncio.wait_for(play(), 30))
    finally:
        end.set()


def test_functions_that_compute_have_one_thread_at_a_time() -> None:
    """With ten manifests decoded at once the controller's loop stood still for 280 ms."""
    began = [threading.Event(), threading.Event()]

    def compute(number: int) -> bool:
        began[number].set()
        return number == 0 and began[1].wait(0.1)

    async def play() -> list[bool]:
        threads = CatalogThreads()
        return await asyncio.gather(*(threads.compute(compute, number) for number in range(2)))

    assert asyncio.run(play()) == [False, False]


def test_call_that_makes_progress_is_not_given_up() -> None:
    """Reading the files of a large table takes longer than any single answer."""
    pause = threading.Event()

    def proceeds(call: CatalogCall) -> int:
        for _ in range(10):
            pause.wait(0.1)
            call.proceed()
        return 7

    async def play() -> None:
        assert await CatalogThreads(silence_s=0.7).call("t", proceeds) == 7

    asyncio.run(play())


def test_call_that_was_given_up_begins_nothing_further() -> None:
    """By then its topic may be deleted, and the next step would create its table."""
    end = threading.Event()
    seen: list[type[Exception] | None] = []

    def wakes_up_late(call: CatalogCall) -> None:
        end.wait()
        try:
            call.proceed()
            seen.append(None)
        except CallGivenUpError as error:
            seen.append(type(error))
            raise

    async def play() -> None:
        threads = CatalogThreads(silence_s=0.05)
        with pytest.raises(CatalogSilentError, match="does not answer"):
            await threads.call("t", wakes_up_late)
        end.set()
        await until(lambda: bool(seen), "the call ends")
        assert seen == [CallGivenUpError]

    asyncio.run(play())


def test_call_of_a_cancelled_caller_is_given_up() -> None:
    """The table is another topic's by then, or none."""
    end = threading.Event()

    async def play() -> None:
        threads = CatalogThreads()
        calling = asyncio.create_task(threads.call("t", lambda _: end.wait()))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        assert threads.given_up == 1

    try:
        asyncio.run(play())
    finally:
        end.set()


def test_time_out_of_the_catalogue_itself_is_passed_on() -> None:
    """The call has ended, so what it used can be used again."""

    def fails(_: CatalogCall) -> None:
        raise TimeoutError("read timed out")

    async def play() -> None:
        threads = CatalogThreads()
        with pytest.raises(TimeoutError, match="read timed out"):
            await threads.call("t", fails)
        assert threads.given_up == 0

    asyncio.run(play())


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize("error", [Panic("no field 3"), StopIteration("no field 3")])
def test_error_that_a_future_does_not_take_is_an_answer(error: BaseException) -> None:
    """Without one the call would count as silent, and its table would wait two minutes each time."""

    def fails(_: CatalogCall) -> None:
        raise error

    async def play() -> None:
        threads = CatalogThreads(silence_s=5.0)
        with pytest.raises(RuntimeError, match=f"{type(error).__name__}: no field 3"):
            await threads.call("t", fails)
        assert threads.given_up == 0

    asyncio.run(play())


def test_late_error_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """Clients of servers put addresses with passwords into it."""
    caplog.set_level(logging.DEBUG)
    end = threading.Event()

    def fails_late(_: CatalogCall) -> None:
        end.wait()
        raise ValueError("mysql://lake:hunter22@db")

    async def play() -> None:
        with pytest.raises(CatalogSilentError):
            await CatalogThreads(silence_s=0.05).call("t", fails_late)
        end.set()
        await until(lambda: "given up has ended: ValueError" in caplog.text, "the end is logged")

    asyncio.run(play())
    assert "hunter22" not in caplog.text
