"""Carries out the effects of one `TopicTable`, by the store on the loop and by the catalogue in threads."""

import asyncio
import logging
import secrets
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from sparklog.driver.controller.tables.catalog_threads import CatalogCall, CatalogThreads
from sparklog.driver.controller.tables.known_table import KnownTable
from sparklog.driver.controller.tables.machine.events import (
    Commit,
    CommitStale,
    Committed,
    DeleteObjects,
    EffectFailed,
    ExpireSnapshots,
    FindHeld,
    FootersRead,
    HeldFound,
    ListObjects,
    ManifestsRead,
    ObjectsDeleted,
    ObjectsListed,
    PiecesWritten,
    ReadFooters,
    ReadManifests,
    ReadTable,
    Retention,
    SnapshotsExpired,
    TableEffect,
    TableEvent,
    TableGone,
    TableNews,
    TableRead,
    TableRefused,
    Ticked,
    TopicDeleted,
    WritePieces,
)
from sparklog.driver.controller.tables.machine.table_files import TableFile, Window, table_prefix
from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.driver.controller.tables.pieces import table_file, write_pieces
from sparklog.driver.controller.tables.redaction import Redaction
from sparklog.driver.controller.tables.table_errors import (
    CatalogSilentError,
    StaleTableError,
    TableGoneError,
    TableRefusedError,
)
from sparklog.driver.controller.tables.table_marker import (
    MarkerFormatError,
    TableMarker,
    decode_marker,
    encode_marker,
)
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.loop.garbage import making_lasting_objects
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError
from sparklog.node.remote_log.machine.names import table_marker_name, topic_prefixes
from sparklog.node.remote_log.object_store import (
    ListedObject,
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StoreError,
)
from sparklog.node.remote_log.segments.segment_footer import open_segment
from sparklog.node.remote_log.stored_manifest import StoredManifest, read_manifest

if TYPE_CHECKING:
    from sparklog.driver.controller.tables.iceberg_table import IcebergTable

T = TypeVar("T")

_PAUSES: Final = ExponentialBackoff(first_ms=1_000, max_ms=60_000)
_NO_SECRETS: Final = Redaction()
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
        redaction: Redaction = _NO_SECRETS,
    ) -> None:
        """`open_table` blocks: it opens the catalogue. `is_owner` reads the owner of the store."""
        self._redaction: Final = redaction
        self._failure: str | None = None
        """An error that the machine knows nothing of; None once a round has gone through."""
        self._failed_to_finish = False
        """Whether that was `_finished`, of which rounds that go through say nothing."""
        self._failures = 0
        """So many in a row."""
        self._commits = self._failed_steps = 0
        self._marked: TableMarker | None = None
        """The marker in the store, while the table is the one that it names."""
        self._began_again = False
        """Whether this keeper has created the table while there was a marker."""
        self.machine = machine
        self._store: Final = store
        self._open_table: Final = open_table
        self._threads: Final = threads
        self._is_owner: Final = is_owner
        self._table: IcebergTable | None = None
        self._manifests: Final[dict[int, StoredManifest]] = {}
        """As last read: one that has not changed is not decoded again, nor compared."""
        self._news: Final[deque[TableNews]] = deque()
        """That the machine has not taken yet; it may be at work in a thread."""
        self._is_deleted = machine.is_deleted
        """Whether the topic is; the machine learns that only after the effect under way."""
        self._woken: Final = asyncio.Event()
        self._reported: str | None = None
        self._reported_held: set[str] = set()

    def note(self, event: TableNews) -> None:
        """Pass news that answer no effect."""
        self._is_deleted |= isinstance(event, TopicDeleted)
        self._news.append(event)
        self._woken.set()

    @property
    def status(self) -> TableStatus:
        status = self.machine.status
        return replace(
            status,
            problem=self._failure or status.problem,
            commits=self._commits,
            failures=self._failed_steps,
        )

    async def run(self) -> None:
        """Keep the table, until cancelled, or until its topic is deleted and needs it no more."""
        while True:
            try:
                await self._keep()
                return
            except Exception as error:
                self._begin_again(error)
            await asyncio.sleep(_PAUSES.pause_ms(self._failures) / 1000)
            self._failures += 1

    def _begin_again(self, error: Exception) -> None:
        """Go on with a new machine after an error that none expects; its first commit is a claim again."""
        self._failure = f"an unexpected error, tried again from the beginning: {self._described(error)}"
        if self._failure != self._reported:
            logger.error("Table %s: %s", self.machine.identity.name, self._redaction.trace(error))
        self._report()
        self._failed_steps += 1
        old = self.machine
        self._failed_to_finish = old.is_finished
        self.machine = TopicTable(
            old.identity, old.owner_epoch, secrets.token_hex(8), old.settings, old.partitions
        )
        if self._is_deleted:
            self.machine.note(TopicDeleted())
        self._table = self._marked = None

    def _described(self, error: Exception) -> str:
        return self._redaction(f"{type(error).__name__}: {error}")

    async def _keep(self) -> None:
        while not self.machine.is_finished or not await self._finished():
            effect = self._handle(Ticked())
            while effect is not None:
                event = await self._answer(effect)
                self._commits += isinstance(event, Committed)
                self._failed_steps += isinstance(event, EffectFailed | TableRefused)
                # Off the loop: of 100,000 files a comparison takes hundreds of milliseconds.
                effect = await self._threads.compute(self._handle, event)
                self._report()
            if not self._failed_to_finish:
                self._failure, self._failures = None, 0
            self._report()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._woken.wait()
            self._woken.clear()

    def _handle(self, event: TableEvent) -> TableEffect | None:
        """Handle an event after the news; in any thread, one at a time."""
        while self._news:
            self.machine.note(self._news.popleft())
        with making_lasting_objects():
            return self.machine.handle(event, monotonic_ms(), wall_clock_ms())

    async def _finished(self) -> bool:
        """Let the objects of a deleted topic go, unless the table keeps them; return whether that is done."""
        identity, settings = self.machine.identity, self.machine.settings
        try:
            if not await self._is_owner():
                self._failed_to_finish = False
                return False
            if settings.retention is Retention.FOREVER:
                await self._mark_finished()
                return True
            prefix = f"{table_prefix(identity.topic, identity.topic_id)}data/"
            await self._delete_all([found.name async for found in self._store.list(prefix)])
            await self._store.delete(table_marker_name(identity.topic_id))
        except (StoreError, MarkerFormatError) as error:
            self._failed_to_finish = True
            self._failure = (
                f"the files of the deleted topic stay, and this is tried again: {self._redaction(str(error))}"
            )
            self._report()
            return False
        return True

    async def _mark_finished(self) -> None:
        name = table_marker_name(self.machine.identity.topic_id)
        try:
            found = await self._store.get(name)
        except ObjectMissingError:
            return
        marker = decode_marker(name, found.data)
        if not marker.finished:
            await self._store.replace(name, encode_marker(replace(marker, finished=True)), found.version)

    async def _read_marked_table(self, known_snapshot_id: int | None) -> TableRead:
        marked, self._marked = self._marked or await self._read_marker(), None
        if marked is None:
            self._check_needs_marker()
        known = KnownTable(
            None if marked is None else marked.table_uuid,
            self.machine.settings.retention is Retention.FOREVER,
            table_marker_name(self.machine.identity.topic_id),
            self._is_deleted,
        )
        table, created = await self._call(lambda call: self._load(known, call))
        self._table = table
        self._began_again |= created and marked is not None
        if marked is None:
            self._check_needs_marker()
        self._marked = marked
        await self._mark(table.uuid)
        return await self._call(lambda call: self._read_table(table, known_snapshot_id, call))

    def _check_needs_marker(self) -> None:
        """Check that the topic is not deleted: without a marker its objects are deleted with it."""
        if self._is_deleted:
            raise TableGoneError("the store has no marker of it")

    async def _read_marker(self) -> TableMarker | None:
        name = table_marker_name(self.machine.identity.topic_id)
        try:
            return decode_marker(name, (await self._store.get(name)).data)
        except ObjectMissingError:
            return None

    async def _mark(self, table_uuid: UUID) -> None:
        """Keep the topic's objects from being deleted with the topic.

        Raises:
            StoreError.
        """
        machine = self.machine
        topic, topic_id, table = machine.identity
        settings = machine.settings
        wanted = TableMarker(
            topic,
            topic_id,
            table,
            settings.retention,
            settings.partitioned_by.value,
            machine.partitions,
            table_uuid,
        )
        if self._marked == wanted or self._is_deleted:
            return
        name, data = table_marker_name(topic_id), encode_marker(wanted)
        try:
            await self._store.create(name, data)
        except ObjectExistsError:
            found = await self._store.get(name)
            if found.data != data:
                await self._store.replace(name, data, found.version)
        self._marked = wanted

    def _report(self) -> None:
        status = self.status
        name, problem = status.name, status.problem
        if self._reported_held != (refs := {each.ref for each in status.held}):
            self._reported_held = refs
            held = "; ".join(map(str, status.held)) or "no branch or tag keeps files that it no longer has"
            logger.info("Table %s: %s", name, held)
        if problem == self._reported:
            return
        if problem is None:
            logger.info("Table %s goes on", name)
        else:
            logger.error("Table %s stands still: %s", name, problem)
        self._reported = problem

    async def _answer(self, effect: TableEffect) -> TableEvent:
        try:
            return await self._carry_out(effect)
        except TableRefusedError as error:
            return TableRefused(self._redaction(str(error)))
        except TableGoneError as error:
            topic, _, table = self.machine.identity
            logger.info("Table %s of the deleted topic %s needs nothing: %s", table, topic, error)
            return TableGone()
        except StaleTableError:
            return CommitStale()
        except (StoreError, ManifestFormatError, CatalogSilentError) as error:
            return EffectFailed(self._redaction(str(error)))
        except Exception as error:  # of catalogues there are many kinds
            logger.debug("%s failed: %s", type(effect).__name__, self._redaction.trace(error))
            return EffectFailed(self._described(error))

    async def _carry_out(self, effect: TableEffect) -> TableEvent:
        match effect:
            case ReadTable(known):
                return await self._read_marked_table(known)
            case ReadManifests(partitions):
                return ManifestsRead(await self._read_manifests(partitions))
            case ReadFooters(windows):
                return FootersRead(await self._footers(windows))
            case WritePieces(window):
                return PiecesWritten(window, await self._pieces(window))
            case Commit():
                table = self._opened
                # A marker says nothing of the columns of a deleted topic's table.
                schema = None if self.machine.is_deleted else self.machine.settings.value_schema
                return Committed(
                    effect, await self._call(lambda call: table.commit(effect, schema, call.proceed))
                )
            case ExpireSnapshots():
                table = self._opened
                return SnapshotsExpired(await self._call(lambda call: table.expire(effect, call.proceed)))
            case FindHeld():
                table = self._opened
                return HeldFound(await self._call(lambda call: table.held(effect, call.proceed)))
            case DeleteObjects(names):
                return await self._delete(names)
            case ListObjects():
                table = self._opened
                listed = await self._listed()
                in_use = await self._call(lambda call: table.metadata_in_use(call.proceed))
                return ObjectsListed(listed, in_use)

    async def _listed(self) -> tuple[ListedObject, ...]:
        topic, topic_id, _ = self.machine.identity
        segments, _, _ = topic_prefixes(topic, topic_id)
        prefixes = segments, table_prefix(topic, topic_id)
        return tuple([found for prefix in prefixes async for found in self._store.list(prefix)])

    @property
    def _opened(self) -> "IcebergTable":
        assert self._table is not None, "`ReadTable` comes first"
        return self._table

    async def _call(self, function: Callable[[CatalogCall], T]) -> T:
        try:
            return await self._threads.call(self.machine.identity.topic_id, function)
        except CatalogSilentError:
            self._table = None  # A thread is left that may still use it.
            raise

    def _load(self, known: KnownTable, call: CatalogCall) -> "tuple[IcebergTable, bool]":
        """Load the table, in a thread; return also whether it was created."""
        table = self._table or self._open_table()
        return table, table.load(known, call.proceed)

    def _read_table(self, table: "IcebergTable", known: int | None, call: CatalogCall) -> TableRead:
        """Read the loaded table; in a thread."""
        newest = table.newest()
        is_known = newest is not None and newest.snapshot_id == known
        files = None if is_known else table.files(call.proceed)
        return TableRead(table.snapshots(), newest, files, self._began_again, table.refs())

    async def _read_manifests(self, partitions: int) -> dict[int, Manifest]:
        room, topic_id = asyncio.Semaphore(MOST_REQUESTS), self.machine.identity.topic_id

        async def read(partition: int) -> StoredManifest | None:
            known = self._manifests.get(partition)
            async with room:
                try:
                    return await read_manifest(self._store, topic_id, partition, known, self._threads.compute)
                except ObjectMissingError:
                    return None

        read_ones = await asyncio.gather(*map(read, range(partitions)))
        self._manifests.clear()
        self._manifests.update({each.manifest.partition: each for each in read_ones if each is not None})
        return {partition: each.manifest for partition, each in self._manifests.items()}

    async def _footers(self, windows: tuple[Window, ...]) -> dict[str, TableFile]:
        room = asyncio.Semaphore(MOST_REQUESTS)

        async def read(window: Window) -> TableFile | None:
            segment = window.segment
            async with room:
                try:
                    opened = await open_segment(self._store, segment.name, segment.size_bytes)
                except ObjectMissingError:
                    return None
            return table_file(opened.footer, window.partition, segment.size_bytes)

        files = await asyncio.gather(*map(read, windows))
        return {file.name: file for file in files if file is not None}

    async def _pieces(self, window: Window) -> tuple[TableFile, ...]:
        identity, settings = self.machine.identity, self.machine.settings
        with tempfile.TemporaryDirectory(prefix="sparklog-table-") as directory:
            return await write_pieces(
                self._store,
                identity,
                window,
                settings.partitioned_by,
                settings.value_schema,
                Path(directory),
            )

    async def _delete(self, names: tuple[str, ...]) -> TableEvent:
        if not await self._is_owner():
            return EffectFailed("another application has taken the store")
        await self._delete_all(names)
        return ObjectsDeleted(names)

    async def _delete_all(self, names: Iterable[str]) -> None:
        room = asyncio.Semaphore(MOST_REQUESTS)

        async def delete(name: str) -> None:
            async with room:
                await self._store.delete(name)

        # An error comes when all requests have ended: none may go on behind the next effect.
        for error in await asyncio.gather(*map(delete, names), return_exceptions=True):
            if error is not None:
                raise error
