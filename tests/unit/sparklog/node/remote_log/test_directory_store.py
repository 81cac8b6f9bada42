"""A directory as an object store: across processes, after crashes, and with what a file system refuses."""

import asyncio
import multiprocessing
from pathlib import Path

import pytest

from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    StaleObjectError,
    StoreRefusedError,
)
from sparklog.node.remote_log.opened_store import open_store
from sparklog.node.remote_log.uri import RemoteUriError


def count_up(directory: str, times: int) -> None:
    """Add 1 to a counter `times`, as often as compare-and-swap needs."""

    async def run() -> None:
        store = DirectoryStore(Path(directory))
        done = 0
        while done < times:
            found = await store.get("counter")
            try:
                await store.replace("counter", b"%d" % (int(found.data) + 1), found.version)
            except StaleObjectError:
                continue
            done += 1
        await store.close()

    asyncio.run(run())


def test_processes_that_swap_one_object_lose_no_write(tmp_path: Path) -> None:
    """Brokers of one machine are processes; a lost write would be a lost manifest."""

    async def read_or_create(create: bytes | None) -> bytes:
        store = DirectoryStore(tmp_path)
        if create is not None:
            await store.create("counter", create)
        data = (await store.get("counter")).data
        await store.close()
        return data

    asyncio.run(read_or_create(b"0"))
    spawning = multiprocessing.get_context("spawn")
    writers = [spawning.Process(target=count_up, args=(str(tmp_path), 25)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert asyncio.run(read_or_create(None)) == b"50"


def test_failed_writes_leave_no_file(tmp_path: Path) -> None:
    """A partition whose leaders contend would fill the disk with what they did not get written."""

    async def run() -> None:
        store = DirectoryStore(tmp_path)
        version = await store.create("manifests/a", b"1")
        await store.replace("manifests/a", b"2", version)
        with pytest.raises(ObjectExistsError):
            await store.create("manifests/a", b"3")
        with pytest.raises(StaleObjectError):
            await store.replace("manifests/a", b"3", version)
        with pytest.raises(StaleObjectError):
            await store.replace("manifests/b", b"3", version)
        await store.close()

    asyncio.run(run())
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == ["a"]


def test_partial_file_of_a_crash_is_listed_as_an_object_and_deleted_as_one(tmp_path: Path) -> None:
    """The collection of orphans needs no rule of its own for directories."""
    partial = tmp_path / "segments" / "a.parquet.partial-01234567"
    partial.parent.mkdir()
    partial.write_bytes(b"half")

    async def run() -> None:
        store = DirectoryStore(tmp_path)
        [found] = [each async for each in store.list("segments")]
        assert found.name == "segments/a.parquet.partial-01234567"
        await store.create("segments/a.parquet", b"whole")
        await store.delete(found.name)
        await store.close()

    asyncio.run(run())
    assert not partial.exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a//b", "a/./b"])
def test_name_that_leaves_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    """Names come from manifests, which others may have written."""

    async def run() -> None:
        store = DirectoryStore(tmp_path / "tier")
        with pytest.raises(StoreRefusedError, match="not the name of an object"):
            await store.create(name, b"")
        await store.close()

    asyncio.run(run())


def test_directory_that_cannot_be_made_is_refused_with_its_path(tmp_path: Path) -> None:
    """Retrying does not turn a file into a directory."""
    (tmp_path / "tier").write_text("a file")

    async def run() -> None:
        store = DirectoryStore(tmp_path / "tier")
        with pytest.raises(StoreRefusedError, match=str(tmp_path)):
            await store.create("owner", b"")
        await store.close()

    asyncio.run(run())


def test_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """The first start finds nothing, as in a new bucket."""

    async def run() -> None:
        store = DirectoryStore(tmp_path / "new")
        assert [each async for each in store.list("")] == []
        with pytest.raises(ObjectMissingError):
            await store.get("owner")
        await store.close()

    asyncio.run(run())


def test_option_for_a_directory_is_refused(tmp_path: Path) -> None:
    """An option that nothing reads is a mistake, such as a URI with the wrong scheme."""
    with pytest.raises(RemoteUriError, match=r"sparklog\.remote\.option\.region"):
        open_store(f"file://{tmp_path}", {"region": "us-east-1"})


def test_file_beside_the_directory_becomes_an_object_without_a_copy(tmp_path: Path) -> None:
    """Where disks and store are one file system a segment is written once; its version is of the bytes."""

    async def run() -> tuple[str, str]:
        store = DirectoryStore(tmp_path / "store")
        created = await store.create("a/segment", tmp_path / "file")
        found = await store.get("a/segment")
        await store.close()
        assert found.data == b"records"
        return created, found.version

    (tmp_path / "file").write_bytes(b"records")
    created, found = asyncio.run(run())
    assert created == found
    assert (tmp_path / "store/a/segment").samefile(tmp_path / "file")
    (tmp_path / "file").unlink()
    assert (tmp_path / "store/a/segment").read_bytes() == b"records"
    assert [path.name for path in (tmp_path / "store/a").iterdir()] == ["segment"]
