"""An object store that fails as chaos wants it to."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from sparklog.node.remote_log.object_store import ObjectStore, StaleObjectError, StoreUnavailableError
from sparklog.node.remote_log.opened_store import open_store
from tests.chaos.store_proxy import FaultyS3, StoreFaults

OPTION = "sparklog.remote.option."


def in_store(work: Callable[[FaultyS3, ObjectStore], Awaitable[None]]) -> None:
    async def run(server: FaultyS3) -> None:
        options = {
            key.removeprefix(OPTION): value for key, value in server.config.items() if key.startswith(OPTION)
        }
        store = open_store(server.config["sparklog.remote.uri"], options)
        try:
            await work(server, store)
        finally:
            await store.close()

    with FaultyS3() as server:
        asyncio.run(run(server))


@pytest.fixture(scope="module", autouse=True)
def _threads_that_stay() -> None:
    """Start obstore's own, which no test ends."""

    async def work(server: FaultyS3, store: ObjectStore) -> None:
        await store.create("first", b"")

    in_store(work)


@pytest.mark.parametrize("faults", [StoreFaults(storm=1), StoreFaults(is_away=True)])
def test_store_that_fails_has_written_nothing(faults: StoreFaults) -> None:
    """What fails before anything has happened may be written again."""

    async def work(server: FaultyS3, store: ObjectStore) -> None:
        version = await store.create("name", b"first")
        server.faults = faults
        with pytest.raises(StoreUnavailableError):
            await store.replace("name", b"second", version)
        server.faults = StoreFaults()
        assert (await store.get("name")).data == b"first"

    in_store(work)


def test_store_that_cuts_a_connection_has_written() -> None:
    """The writer cannot know it, and has to look: the same write again is stale."""

    async def work(server: FaultyS3, store: ObjectStore) -> None:
        version = await store.create("name", b"first")
        server.faults = StoreFaults(cut=1)
        with pytest.raises(StoreUnavailableError):
            await store.replace("name", b"second", version)
        server.faults = StoreFaults()
        assert (await store.get("name")).data == b"second"
        with pytest.raises(StaleObjectError):
            await store.replace("name", b"second", version)

    in_store(work)


def test_store_that_holds_its_answers_is_slow() -> None:
    """An answer below the limits of a request is a right one."""

    async def work(server: FaultyS3, store: ObjectStore) -> None:
        server.faults = StoreFaults(hold_s=0.5)
        began_s = time.monotonic()
        await store.create("name", b"first")
        assert time.monotonic() - began_s >= 0.5

    in_store(work)


def test_of_writers_at_once_one_replaces_an_object() -> None:
    """The proxy keeps conditions that moto, which has threads, does not."""

    async def work(server: FaultyS3, store: ObjectStore) -> None:
        version = await store.create("name", b"first")
        writes = [store.replace("name", b"%d" % number, version) for number in range(16)]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(not isinstance(answer, StaleObjectError) for answer in answers) == 1

    in_store(work)
