"""The keeper of a table whose catalogue has lost it, has another one under its name, or is silent."""

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Never
from uuid import UUID

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema

from sparklog.driver.controller.tables.catalog_threads import SILENCE_S, CatalogThreads
from sparklog.driver.controller.tables.iceberg_table import IcebergTable
from sparklog.driver.controller.tables.machine.events import (
    PartitionedBy,
    Retention,
    TableEffect,
    TableEvent,
    TableIdentity,
    TableSettings,
    TopicDeleted,
)
from sparklog.driver.controller.tables.machine.silent_calls import MOST_SILENT
from sparklog.driver.controller.tables.machine.table_files import table_prefix
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.driver.controller.tables.redaction import Redaction
from sparklog.driver.controller.tables.table_keeper import MOST_REQUESTS, TableKeeper
from sparklog.driver.controller.tables.table_marker import decode_marker
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_encoding import encode_manifest
from sparklog.node.remote_log.machine.names import (
    manifest_name,
    segment_file_name,
    segments_prefix,
    table_marker_name,
)
from sparklog.node.remote_log.object_store import StoreUnavailableError
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.segments.segment_writer import write_segment
from tests.unit.executor.brokers import until
from tests.unit.sparklog.node.remote_log.segments.rows import Record, rows_of

IDENTITY: Final = TableIdentity("orders", UUID(int=7), "topics.orders")
MARKER: Final = table_marker_name(IDENTITY.topic_id)


async def owns_store() -> bool:
    return True


class Lake:
    def __init__(self, directory: Path) -> None:
        self.bucket: Final = directory / "bucket"
        self.bucket.mkdir()
        uri = f"sqlite:///{directory}/catalogue.db"
        self.catalog: Final[Catalog] = load_catalog("test", type="sql", uri=uri, warehouse=directory.as_uri())

    def open_table(self) -> IcebergTable:
        return IcebergTable(
            self.catalog, IDENTITY, self.bucket.as_uri(), "tables/orders", SCHEMA, PartitionedBy.NONE
        )

    def keeper(
        self,
        retention: Retention,
        partitions: int = 1,
        silence_s: float = SILENCE_S,
        first_catalogs: Sequence[str] = (),
    ) -> TableKeeper:
        """`first_catalogs` are the addresses of REST catalogues that are opened before the lake's."""
        uris = list(first_catalogs)

        def open_table() -> IcebergTable:
            catalog = load_catalog("test", type="rest", uri=uris.pop(0)) if uris else self.catalog
            if catalog is self.catalog:
                return self.open_table()
            return IcebergTable(
                catalog, IDENTITY, self.bucket.as_uri(), "tables/orders", SCHEMA, PartitionedBy.NONE
            )

        settings = TableSettings(commit_interval_ms=10, snapshot_retention_ms=1_000, retention=retention)
        machine = TopicTable(IDENTITY, 1, secrets.token_hex(8), settings, partitions)
        threads = CatalogThreads(silence_s)
        return TableKeeper(machine, DirectoryStore(self.bucket), open_table, threads, owns_store)

    def put_manifest(self) -> Path:
        """Write a manifest of two records, and return the path of a segment that it has given up."""
        topic, topic_id, _ = IDENTITY
        paths = []
        for base, name in enumerate("ab"):
            path = self.bucket / segments_prefix(topic, topic_id, 0) / segment_file_name(base, 0, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_segment([rows_of([Record(base)])], path, topic=topic, topic_id=topic_id, partition=0)
            paths.append(path)
        old, new = (str(path.relative_to(self.bucket)) for path in paths)
        size = paths[1].stat().st_size
        segment = RemoteSegment(new, 1, 2, 1, size, size, 0, 0, 0)
        manifest = Manifest(topic, topic_id, 0, 1, 0, 1, 2, (segment,), (), None, (old,), 0)
        path = self.bucket / manifest_name(topic_id, 0)
        path.parent.mkdir(parents=True)
        path.write_bytes(encode_manifest(manifest))
        return paths[0]

    @property
    def has_table(self) -> bool:
        return self.catalog.table_exists(IDENTITY.name)

    @property
    def marked_uuid(self) -> UUID | None:
        data = (self.bucket / MARKER).read_bytes()
        return decode_marker(MARKER, data).table_uuid

    async def begin(self, retention: Retention) -> None:
        """Keep the table until its marker is written."""
        keeping = asyncio.create_task(self.keeper(retention).run())
        await until((self.bucket / MARKER).exists, "the marker is written")
        await stop(keeping)

    async def problem(self, retention: Retention) -> str:
        keeper = self.keeper(retention)
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.machine.status.problem is not None, "the keeper stands still")
        await stop(keeping)
        return keeper.machine.status.problem or ""

    async def finish(self, retention: Retention, partitions: int = 1) -> None:
        """Keep the table of the deleted topic to its end."""
        keeper = self.keeper(retention, partitions)
        keeper.note(TopicDeleted())
        async with asyncio.timeout(30):
            await keeper.run()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_table_that_keeps_rows_is_not_made_again_if_the_catalogue_lacks_it(lake: Lake) -> None:
    """Kept rows are named by the old table alone: beside an empty one their files would be deleted."""

    async def play() -> None:
        await lake.begin(Retention.FOREVER)
        uuid = lake.catalog.load_table(IDENTITY.name).metadata.table_uuid
        assert lake.marked_uuid == uuid
        lake.catalog.rename_table(IDENTITY.name, "topics.old")
        problem = await lake.problem(Retention.FOREVER)
        assert f"kept for ever in table {uuid}" in problem
        assert f"delete {MARKER}" in problem
        assert not lake.has_table
        lake.catalog.rename_table("topics.old", IDENTITY.name)
        await lake.begin(Retention.FOREVER)

    asyncio.run(play())


def test_another_table_of_the_topic_does_not_replace_one_that_keeps_rows(lake: Lake) -> None:
    """A catalogue from a backup can have an older one."""

    async def play() -> None:
        await lake.begin(Retention.FOREVER)
        old = lake.catalog.load_table(IDENTITY.name)
        lake.catalog.drop_table(IDENTITY.name)
        lake.catalog.create_table(IDENTITY.name, old.schema(), properties=old.properties)
        assert "is another table" in await lake.problem(Retention.FOREVER)

    asyncio.run(play())


@pytest.mark.parametrize("retention", Retention)
def test_files_that_only_a_lost_table_names_stay_if_rows_are_kept(lake: Lake, retention: Retention) -> None:
    """The marker of an earlier version does not say which table it was, and another one is made."""

    async def play() -> None:
        given_up = lake.put_manifest()
        await lake.begin(retention)
        marker = json.loads((lake.bucket / MARKER).read_bytes())
        (lake.bucket / MARKER).write_text(json.dumps(marker | {"table_uuid": None}))
        lake.catalog.drop_table(IDENTITY.name)
        given_up.touch()
        keeper = lake.keeper(retention)
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.machine.status.committed == {0: 2}, "the segment is in the table")
        if retention is Retention.TOPIC:
            await until(lambda: not given_up.exists(), "what the topic has left is deleted")
        else:
            seen = keeper.machine.status.snapshot_id
            keeper.note(TopicDeleted())
            await asyncio.wait_for(keeping, 30)
            assert keeper.machine.status.snapshot_id == seen
            assert given_up.exists()
        await stop(keeping)

    asyncio.run(play())


def test_table_that_has_the_topics_rows_alone_is_made_again(lake: Lake) -> None:
    """Nothing is lost, and the marker has the new one."""

    async def play() -> None:
        await lake.begin(Retention.TOPIC)
        old = lake.marked_uuid
        lake.catalog.drop_table(IDENTITY.name)
        keeping = asyncio.create_task(lake.keeper(Retention.TOPIC).run())
        await until(lambda: lake.marked_uuid != old, "the marker has another table")
        assert lake.marked_uuid == lake.catalog.load_table(IDENTITY.name).metadata.table_uuid
        await stop(keeping)

    asyncio.run(play())


def test_table_whose_fields_have_other_ids_than_the_files_is_refused(lake: Lake) -> None:
    """Readers would show nulls, or another column's values."""

    async def play() -> None:
        await lake.begin(Retention.TOPIC)
        old = lake.catalog.load_table(IDENTITY.name)
        lake.catalog.drop_table(IDENTITY.name)
        fields = [field for field in old.schema().fields if field.name != "value"]
        lake.catalog.create_table(IDENTITY.name, Schema(*fields), properties=old.properties)
        assert "have not the field ids" in await lake.problem(Retention.TOPIC)

    asyncio.run(play())


def test_table_of_another_topic_is_refused_with_what_helps(lake: Lake) -> None:
    """The name does not change while the topic is a table."""

    async def play() -> None:
        await lake.begin(Retention.TOPIC)
        schema = lake.catalog.load_table(IDENTITY.name).schema()
        lake.catalog.drop_table(IDENTITY.name)
        lake.catalog.create_table(IDENTITY.name, schema)
        assert (await lake.problem(Retention.TOPIC)).endswith(
            "give topic orders another sparklog.table.name, for which sparklog.table.enable=false has to"
            " come first"
        )

    asyncio.run(play())


@pytest.mark.parametrize("retention", Retention)
def test_table_of_a_deleted_topic_is_not_made_again(lake: Lake, retention: Retention) -> None:
    """An operator who drops it later must not find it again after the driver's next start."""

    async def play() -> None:
        await lake.begin(retention)
        lake.catalog.drop_table(IDENTITY.name)
        await lake.finish(retention)
        assert not lake.has_table
        assert (lake.bucket / MARKER).exists() == (retention is Retention.FOREVER)

    asyncio.run(play())


@pytest.mark.parametrize("retention", Retention)
def test_table_of_a_deleted_topic_ends_beside_anothers(lake: Lake, retention: Retention) -> None:
    """A new topic of the same name has it, or a job."""

    async def play() -> None:
        await lake.begin(retention)
        schema = lake.catalog.load_table(IDENTITY.name).schema()
        lake.catalog.drop_table(IDENTITY.name)
        lake.catalog.create_table(IDENTITY.name, schema)
        await lake.finish(retention)
        assert lake.catalog.load_table(IDENTITY.name).current_snapshot() is None

    asyncio.run(play())


def test_table_of_a_deleted_topic_without_a_marker_is_left_alone(lake: Lake) -> None:
    """A former driver has let its objects go, and has removed the marker last."""

    async def play() -> None:
        lake.put_manifest()
        keeper = lake.keeper(Retention.TOPIC)
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.machine.status.committed == {0: 2}, "the segment is in the table")
        await stop(keeping)
        snapshot = lake.catalog.load_table(IDENTITY.name).current_snapshot()
        (lake.bucket / MARKER).unlink()
        await lake.finish(Retention.TOPIC)
        assert lake.catalog.load_table(IDENTITY.name).current_snapshot() == snapshot
        assert not (lake.bucket / MARKER).exists()

    asyncio.run(play())


def test_marker_of_a_deleted_topic_is_not_written_again(lake: Lake) -> None:
    """It says what the topic was; another driver may have removed it meanwhile."""

    async def play() -> None:
        await lake.begin(Retention.FOREVER)
        await lake.finish(Retention.FOREVER, partitions=2)
        assert decode_marker(MARKER, (lake.bucket / MARKER).read_bytes()).partitions == 1

    asyncio.run(play())


@pytest.mark.parametrize("is_marked", [False, True])
def test_marker_is_not_written_for_a_topic_that_is_deleted_while_its_table_is_loaded(
    lake: Lake, is_marked: bool
) -> None:
    """Brokers that saw none have deleted the topic's objects by then, and no table needs them."""
    opening, go_on = threading.Event(), threading.Event()

    def open_table() -> IcebergTable:
        opening.set()
        go_on.wait()
        return lake.open_table()

    async def play() -> None:
        if is_marked:
            await lake.begin(Retention.FOREVER)
        machine = lake.keeper(Retention.FOREVER, partitions=2).machine
        keeper = TableKeeper(machine, DirectoryStore(lake.bucket), open_table, CatalogThreads(), owns_store)
        keeping = asyncio.create_task(keeper.run())
        await until(opening.is_set, "the table is loaded")
        keeper.note(TopicDeleted())
        go_on.set()
        await asyncio.wait_for(keeping, 30)

    try:
        asyncio.run(play())
    finally:
        go_on.set()
    marker = lake.bucket / MARKER
    assert marker.exists() == is_marked
    if is_marked:
        assert decode_marker(MARKER, marker.read_bytes()).partitions == 1


def test_marker_says_that_a_table_with_kept_rows_is_finished(lake: Lake) -> None:
    """Later drivers need not look at the table."""

    async def play() -> None:
        await lake.begin(Retention.FOREVER)
        await lake.finish(Retention.FOREVER)
        assert decode_marker(MARKER, (lake.bucket / MARKER).read_bytes()).finished
        assert lake.has_table

    asyncio.run(play())


def test_table_goes_on_after_a_catalogue_that_accepted_and_never_answered(lake: Lake) -> None:
    """The address of a proxy whose server is gone takes connections, and says nothing for ever."""

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
            keeper = lake.keeper(Retention.TOPIC, silence_s=5.0, first_catalogs=[uri])
            keeping = asyncio.create_task(keeper.run())
            await until(lambda: keeper.machine.status.problem is not None, "the call is given up")
            assert keeper.machine.status.problem == (
                "the catalogue does not answer: a call was given up after 5 s"
            )
            await until((lake.bucket / MARKER).exists, "the table goes on")
            await until(lambda: keeper.machine.status.problem is None, "nothing is left of it")
            await stop(keeping)

    asyncio.run(play())


@pytest.mark.parametrize(("kind", "shown"), [(ValueError, "ValueError: "), (StoreUnavailableError, "")])
def test_error_is_shown_without_a_password(lake: Lake, kind: type[Exception], shown: str) -> None:
    """Drivers of databases and clients of servers and stores put addresses into their errors."""

    def open_table() -> IcebergTable:
        raise kind("cannot connect to mysql://lake:hunter22@db/lake")

    async def play() -> None:
        machine = lake.keeper(Retention.TOPIC).machine
        redaction = Redaction({"uri": "mysql://lake:hunter22@db/lake"})
        store = DirectoryStore(lake.bucket)
        keeper = TableKeeper(machine, store, open_table, CatalogThreads(), owns_store, redaction)
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.status.problem is not None, "the keeper stands still")
        await stop(keeping)
        assert keeper.status.problem == f"{shown}cannot connect to mysql://lake:[hidden]@db/lake"

    asyncio.run(play())


class Undeletable(DirectoryStore):
    async def delete(self, name: str) -> Never:
        raise StoreUnavailableError("DELETE https://lake:hunter22@store/bucket: 503")


def test_error_at_the_end_of_a_deleted_topics_table_is_shown_without_a_password(lake: Lake) -> None:
    """It stays on the page of tables, and in the log, for as long as the store cannot be reached."""

    async def play() -> None:
        machine = lake.keeper(Retention.TOPIC).machine
        redaction = Redaction({"uri": "https://lake:hunter22@store"})
        store = Undeletable(lake.bucket)
        keeper = TableKeeper(machine, store, lake.open_table, CatalogThreads(), owns_store, redaction)
        keeper.note(TopicDeleted())
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.status.problem is not None, "the error is shown")
        await stop(keeping)
        problem = keeper.status.problem or ""
        assert "files of the deleted topic stay" in problem
        assert problem.endswith("DELETE https://lake:[hidden]@store/bucket: 503")

    asyncio.run(play())


def test_keeper_goes_on_after_an_error_that_none_expects(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """Its table would stand still until the driver's end; the error is logged once, and shown meanwhile."""
    failures = 2

    async def fails_twice() -> bool:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("dictionary changed size")
        return True

    async def play() -> None:
        await lake.begin(Retention.TOPIC)
        first = lake.keeper(Retention.TOPIC)
        keeper = TableKeeper(
            first.machine, DirectoryStore(lake.bucket), lake.open_table, CatalogThreads(), fails_twice
        )
        keeper.note(TopicDeleted())
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.status.problem is not None, "the error is shown")
        assert "unexpected error" in (keeper.status.problem or "")
        assert "RuntimeError: dictionary changed size" in (keeper.status.problem or "")
        async with asyncio.timeout(30):
            await keeping

    asyncio.run(play())
    assert not (lake.bucket / MARKER).exists()
    assert sum("Traceback" in record.getMessage() for record in caplog.records) == 1


class Broken(TopicTable):
    def handle(self, event: TableEvent, now_ms: int, wall_ms: int) -> TableEffect | None:
        raise RuntimeError("dictionary changed size")


def test_error_of_a_deleted_topics_table_is_shown_until_a_round_goes_through(lake: Lake) -> None:
    """It would be shown until all is finished, which a tag can put off for years."""

    async def owns_nothing() -> bool:
        return False

    async def play() -> None:
        like = lake.keeper(Retention.TOPIC).machine
        machine = Broken(IDENTITY, 1, "first", like.settings, 1)
        store = DirectoryStore(lake.bucket)
        keeper = TableKeeper(machine, store, lake.open_table, CatalogThreads(), owns_nothing)
        keeper.note(TopicDeleted())
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.status.problem is not None, "the error is shown")
        await until(lambda: keeper.status.problem is None, "a round has gone through")
        await stop(keeping)

    asyncio.run(play())


class CountedDeletions(DirectoryStore):
    most = under_way = 0

    async def delete(self, name: str) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        await super().delete(name)
        self.under_way -= 1


def test_objects_are_deleted_many_at_once_but_not_all(lake: Lake) -> None:
    """One after the other 100,000 take an hour; all at once they are more than a store takes."""

    async def play() -> None:
        store = CountedDeletions(lake.bucket)
        prefix = f"{table_prefix(IDENTITY.topic, IDENTITY.topic_id)}data/"
        for number in range(3 * MOST_REQUESTS):
            await store.create(f"{prefix}{number}.parquet", b"")
        machine = lake.keeper(Retention.TOPIC).machine
        keeper = TableKeeper(machine, store, lake.open_table, CatalogThreads(), owns_store)
        keeper.note(TopicDeleted())
        async with asyncio.timeout(30):
            await keeper.run()
        assert [found async for found in store.list(prefix)] == []
        assert store.most == MOST_REQUESTS

    asyncio.run(play())


def test_marker_that_cannot_be_read_is_shown_while_the_table_stands_still(lake: Lake) -> None:
    """Nothing else says why the objects of a deleted topic stay."""

    async def play() -> None:
        (lake.bucket / MARKER).parent.mkdir(parents=True, exist_ok=True)
        (lake.bucket / MARKER).write_text("{}")
        assert f"{MARKER} in the object store is no marker" in await lake.problem(Retention.FOREVER)

    asyncio.run(play())


def test_table_is_committed_though_the_threads_of_silent_calls_never_end(lake: Lake) -> None:
    """A catalogue that was away for an hour has left as many as a rule takes for a reason to wait."""
    end = threading.Event()

    async def play() -> None:
        lake.put_manifest()
        threads = CatalogThreads()
        for _ in range(MOST_SILENT):
            calling = asyncio.create_task(threads.call(IDENTITY.topic_id, lambda _: end.wait()))
            await asyncio.sleep(0)
            calling.cancel()
            await asyncio.wait([calling])
        assert threads.given_up == MOST_SILENT
        machine = lake.keeper(Retention.TOPIC).machine
        keeper = TableKeeper(machine, DirectoryStore(lake.bucket), lake.open_table, threads, owns_store)
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: keeper.status.committed == {0: 2}, "the segment is in the table")
        await stop(keeping)

    try:
        asyncio.run(play())
    finally:
        end.set()
