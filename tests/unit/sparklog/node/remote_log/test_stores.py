"""The contract of object stores, kept by a cloud's (moto's S3), a directory's and the tests' own one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest

from sparklog.node.remote_log.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StaleObjectError,
    StoreUnavailableError,
)
from sparklog.node.remote_log.opened_store import check_access, open_store
from tests.certificates import Authority, server_keys
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults
from tests.s3_server import S3Server, s3_server

Scenario: TypeAlias = Callable[[ObjectStore], Awaitable[None]]
LARGE = bytes(range(256)) * (80 * 1024)
"""More than goes into one request."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=["cloud", "directory", "memory"])
def play(request: pytest.FixtureRequest, server: S3Server, tmp_path: Path) -> Callable[[Scenario], None]:
    """Return a function that runs a scenario over an empty store."""

    def opened() -> ObjectStore:
        match request.param:
            case "cloud":
                return open_store(f"s3://bucket/{uuid4()}", server.options)
            case "directory":
                return open_store(f"file://{tmp_path}/tier", {})
        return FaultyStore(MemoryStore(), StoreFaults(), seed=0)

    def run(scenario: Scenario) -> None:
        async def over_store() -> None:
            store = opened()
            await scenario(store)
            await store.close()

        asyncio.run(over_store())

    return run


def test_created_object_is_read_whole_and_in_ranges(play: Callable[[Scenario], None]) -> None:
    """A footer and a row group are ranges of a segment."""

    async def scenario(store: ObjectStore) -> None:
        version = await store.create("segments/t-0/0/a.parquet", memoryview(b"0123456789"))
        assert await store.get("segments/t-0/0/a.parquet") == (b"0123456789", version)
        assert await store.get_range("segments/t-0/0/a.parquet", 3, 7) == b"3456"
        assert await store.get_range("segments/t-0/0/a.parquet", 9, 10) == b"9"

    play(scenario)


def test_object_that_exists_is_not_created_and_keeps_its_contents(play: Callable[[Scenario], None]) -> None:
    """Of two applications that take a prefix at once one must fail."""

    async def scenario(store: ObjectStore) -> None:
        await store.create("owner", b"first")
        with pytest.raises(ObjectExistsError, match="owner"):
            await store.create("owner", b"second")
        assert (await store.get("owner")).data == b"first"

    play(scenario)


def test_object_is_replaced_only_in_the_state_that_the_writer_saw(play: Callable[[Scenario], None]) -> None:
    """A deposed leader's manifest must not undo its successor's."""

    async def scenario(store: ObjectStore) -> None:
        first = await store.create("manifests/x/0", b"1")
        second = await store.replace("manifests/x/0", b"2", first)
        assert second != first
        with pytest.raises(StaleObjectError, match="manifests/x/0"):
            await store.replace("manifests/x/0", b"3", first)
        assert await store.get("manifests/x/0") == (b"2", second)
        await store.delete("manifests/x/0")
        with pytest.raises(StaleObjectError, match="manifests/x/0"):
            await store.replace("manifests/x/0", b"3", second)

    play(scenario)


def test_one_of_many_writers_at_once_succeeds(play: Callable[[Scenario], None]) -> None:
    """Compare-and-swap is one step, whatever happens beside it."""

    async def scenario(store: ObjectStore) -> None:
        created = await asyncio.gather(
            *(store.create("owner", b"%d" % writer) for writer in range(8)), return_exceptions=True
        )
        versions = [each for each in created if isinstance(each, str)]
        assert len(versions) == 1
        assert sum(isinstance(each, ObjectExistsError) for each in created) == 7
        replaced = await asyncio.gather(
            *(store.replace("owner", b"next %d" % writer, versions[0]) for writer in range(8)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, str) for each in replaced) == 1
        assert sum(isinstance(each, StaleObjectError) for each in replaced) == 7

    play(scenario)


def test_missing_object_is_an_error_to_read_and_none_to_delete(play: Callable[[Scenario], None]) -> None:
    """A deletion that is repeated after a crash finds its object gone."""

    async def scenario(store: ObjectStore) -> None:
        await store.delete("segments/none")
        with pytest.raises(ObjectMissingError, match="segments/none"):
            await store.get("segments/none")
        with pytest.raises(ObjectMissingError, match="segments/none"):
            await store.get_range("segments/none", 0, 1)

    play(scenario)


def test_range_beyond_the_end_is_an_error_and_no_short_read(play: Callable[[Scenario], None]) -> None:
    """An object shorter than its manifest says is damaged."""

    async def scenario(store: ObjectStore) -> None:
        await store.create("short", b"abc")
        with pytest.raises(StoreUnavailableError, match="short"):
            await store.get_range("short", 1, 10)

    play(scenario)


def test_list_has_the_objects_below_a_path_and_no_others(play: Callable[[Scenario], None]) -> None:
    """Orphans of one partition are looked for below its path; `segments/ab` is not below `segments/a`."""

    async def scenario(store: ObjectStore) -> None:
        names = ["manifests/0", "segments/a/0/x", "segments/a/1/y", "segments/ab/0/z"]
        for name in names:
            await store.create(name, name.encode())
        found = [each async for each in store.list("segments/a")]
        assert sorted(found) == sorted([each async for each in store.list("segments/a/")])
        assert sorted(each.name for each in found) == ["segments/a/0/x", "segments/a/1/y"]
        assert {each.size_bytes for each in found} == {14}
        assert all(each.modified_ms > 0 for each in found)
        assert sorted([each.name async for each in store.list("")]) == names
        assert [each async for each in store.list("producers")] == []

    play(scenario)


def test_large_object_is_created_from_memory_and_from_a_file(
    play: Callable[[Scenario], None], tmp_path: Path
) -> None:
    """A segment is a file, of which no more is in memory than a few parts; it takes the name of no other."""
    file = tmp_path / "segment"
    file.write_bytes(LARGE)

    async def scenario(store: ObjectStore) -> None:
        await store.create("from-memory", LARGE)
        await store.create("from-file", file)
        for name in ("from-memory", "from-file"):
            assert (await store.get(name)).data == LARGE
            with pytest.raises(ObjectExistsError, match=name):
                await store.create(name, file)

    play(scenario)


def test_access_is_checked_by_doing_all_and_leaves_nothing(play: Callable[[Scenario], None]) -> None:
    """A start must not litter the bucket."""

    async def scenario(store: ObjectStore) -> None:
        await check_access(store)
        assert [each async for each in store.list("")] == []

    play(scenario)


def test_store_with_tls_is_used_with_its_authority_and_not_without(tmp_path: Path) -> None:
    """An endpoint that is another one in disguise would get all records."""
    authority = Authority()
    certificate = Path(server_keys(authority.certify(), tmp_path)["ssl.keystore.location"])

    async def check(options: dict[str, str]) -> None:
        store = open_store(f"s3://bucket/{uuid4()}", {**options, "max_retries": "0"})
        try:
            await check_access(store)
        finally:
            await store.close()

    with s3_server(certificate) as server:
        asyncio.run(check({**server.options, "root_certificate": authority.pem}))
        for others in ({}, {"root_certificate": Authority("another").pem}):
            with pytest.raises(StoreUnavailableError, match="error sending request"):
                asyncio.run(check({**server.options, **others}))
