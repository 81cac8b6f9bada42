"""Carries out the effects of one `TopicTable`, by the store on the loop and by the catalogue in threads."""

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparklog.driver.controller.tables.catalog_threads import CatalogThreads
from sparklog.driver.controller.tables.machine.events import (
    Commit,
    CommitStale,
    Committed,
    DeleteObjects,
    EffectFailed,
    ExpireSnapshots,
    FootersRead,
    ListPieces,
    ManifestsRead,
    ObjectsDeleted,
    PiecesListed,
    PiecesWritten,
    ReadFooters,
    ReadManifests,
    ReadTable,
    SnapshotsExpired,
    TableEffect,
    TableEvent,
    TableNews,
    TableRead,
    TableRefused,
    Ticked,
    WritePieces,
)
from sparklog.driver.controller.tables.machine.table_files import TableFile, Window, table_prefix
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.driver.controller.tables.pieces import table_file, write_pieces
from sparklog.driver.controller.tables.table_errors import StaleTableError, TableRefusedError
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError
from sparklog.node.remote_log.object_store import ObjectMissingError, ObjectStore, StoreError
from sparklog.node.remote_log.segments.segment_footer import read_footer
from sparklog.node.remote_log.stored_manifest import read_manifest

if TYPE_CHECKING:
    from sparklog.driver.controller.tables.iceberg_table import IcebergTable

TICK_S: Final = 1.0
MOST_REQUESTS: Final = 16
"""To the store, at once."""

logger = logging.getLogger(__name__)


class TableKeeper:
    """One table; belongs to the controller's loop."""

    def __init__(
        self,
        machine: TopicTable,
        store: ObjectStore,
        open_table: Callable[[], "IcebergTable"],
        threads: CatalogThreads,
        is_owner: Callable[[], Awaitable[bool]],
    ) -> None:
        """`open_table` blocks: it opens the catalogue. `is_owner` reads the owner of the store."""
        self.machine: Final = machine
        self._store: Final = store
        self._open_table: Final = open_table
        self._threads: Final = threads
        self._is_owner: Final = is_owner
        self._table: IcebergTable | None = None
        self._woken: Final = asyncio.Event()
        self._reported: str | None = None

    def note(self, event: TableNews) -> None:
        """Pass news that answer no effect."""
        self.machine.note(event)
        self._woken.set()

    async def run(self) -> None:
        """Keep the table, until cancelled."""
        while True:
            effect = self.machine.handle(Ticked(), monotonic_ms(), wall_clock_ms())
            while effect is not None:
                event = await self._answer(effect)
                effect = self.machine.handle(event, monotonic_ms(), wall_clock_ms())
                self._report()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._woken.wait()
            self._woken.clear()

    def _report(self) -> None:
        problem = self.machine.status.problem
        if problem == self._reported:
            return
        name = self.machine.identity.name
        if problem is None:
            logger.info("Table %s goes on", name)
        else:
            logger.error("Table %s stands still: %s", name, problem)
        self._reported = problem

    async def _answer(self, effect: TableEffect) -> TableEvent:
        try:
            return await self._carry_out(effect)
        except TableRefusedError as error:
            return TableRefused(str(error))
        except StaleTableError:
            return CommitStale()
        except (StoreError, ManifestFormatError) as error:
            return EffectFailed(str(error))
        except Exception as error:  # of catalogues there are many kinds
            logger.debug("%s failed", type(effect).__name__, exc_info=True)
            return EffectFailed(f"{type(error).__name__}: {error}")

    async def _carry_out(self, effect: TableEffect) -> TableEvent:
        match effect:
            case ReadTable(known):
                return await self._threads.call(lambda: self._read_table(known))
            case ReadManifests(partitions):
                return ManifestsRead(await self._manifests(partitions))
            case ReadFooters(windows):
                return FootersRead(await self._footers(windows))
            case WritePieces(window):
                return PiecesWritten(window, await self._pieces(window))
            case Commit():
                table = self._opened
                return Committed(effect, await self._threads.call(lambda: table.commit(effect)))
            case ExpireSnapshots(snapshot_ids):
                table = self._opened
                await self._threads.call(lambda: table.expire(snapshot_ids))
                return SnapshotsExpired(snapshot_ids)
            case DeleteObjects(names):
                return await self._delete(names)
            case ListPieces():
                identity = self.machine.identity
                prefix = f"{table_prefix(identity.topic, identity.topic_id)}data/"
                return PiecesListed(tuple([found.name async for found in self._store.list(prefix)]))

    @property
    def _opened(self) -> "IcebergTable":
        assert self._table is not None, "`ReadTable` comes first"
        return self._table

    def _read_table(self, known: int | None) -> TableRead:
        """Load the table; in a thread."""
        if self._table is None:
            self._table = self._open_table()
        table = self._table
        table.load()
        newest = table.newest()
        is_known = newest is not None and newest.snapshot_id == known
        return TableRead(table.snapshots(), newest, None if is_known else table.files())

    async def _manifests(self, partitions: int) -> dict[int, Manifest]:
        room = asyncio.Semaphore(MOST_REQUESTS)

        async def read(partition: int) -> Manifest | None:
            async with room:
                try:
                    found = await read_manifest(self._store, self.machine.identity.topic_id, partition)
                except ObjectMissingError:
                    return None
                return found.manifest

        read_ones = await asyncio.gather(*map(read, range(partitions)))
        return {each.partition: each for each in read_ones if each is not None}

    async def _footers(self, windows: tuple[Window, ...]) -> dict[str, TableFile]:
        room = asyncio.Semaphore(MOST_REQUESTS)

        async def read(window: Window) -> TableFile | None:
            segment = window.segment
            async with room:
                try:
                    footer = await read_footer(self._store, segment.name, segment.size_bytes)
                except ObjectMissingError:
                    return None
            return table_file(footer, window.partition, segment.size_bytes)

        files = await asyncio.gather(*map(read, windows))
        return {file.name: file for file in files if file is not None}

    async def _pieces(self, window: Window) -> tuple[TableFile, ...]:
        identity = self.machine.identity
        with tempfile.TemporaryDirectory(prefix="sparklog-table-") as directory:
            return await write_pieces(
                self._store, identity, window, self.machine.settings.partitioned_by, Path(directory)
            )

    async def _delete(self, names: tuple[str, ...]) -> TableEvent:
        if not await self._is_owner():
            return EffectFailed("another application has taken the store")
        for name in names:
            await self._store.delete(name)
        return ObjectsDeleted(names)
