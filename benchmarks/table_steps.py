"""Steps of a table's committer beside 100,000 files: `python -m benchmarks.table_steps`.

Prints the time that the machine takes for a comparison of all, for each later step of a commit and for a
round without changes; and the longest time for which the keeper of such a table, in its rounds, holds up the
loop that it shares with the controller.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from sparklog.driver.controller.tables.catalog_threads import CatalogThreads
from sparklog.driver.controller.tables.machine.events import (
    Commit,
    Committed,
    FootersRead,
    ManifestsRead,
    ObjectsListed,
    ReadFooters,
    TableEvent,
    TableIdentity,
    TableRead,
    TableSettings,
    TableSnapshot,
    Ticked,
)
from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef
from sparklog.driver.controller.tables.machine.table_files import LiveFile, TableFile
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.driver.controller.tables.table_keeper import TableKeeper
from sparklog.node.loop.garbage import freezing_survivors
from sparklog.node.loop.loop_lag import TurnSelector
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_encoding import encode_manifest
from sparklog.node.remote_log.machine.names import manifest_name

PARTITIONS: Final = 10
FILES: Final = 10_000
"""Of each partition."""
MISSING: Final = 400
IDENTITY: Final = TableIdentity("orders", UUID(int=7), "topics.orders")
ROUNDS_S: Final = 10.0


def segment(partition: int, number: int) -> RemoteSegment:
    name = f"segments/orders-{IDENTITY.topic_id}/{partition}/{number:020d}-0000000000-a-{number}.parquet"
    return RemoteSegment(name, 10 * number, 10 * number + 10, 10, 100, 100, 0, 9, 0)


def file_of(found: RemoteSegment, partition: int) -> TableFile:
    last_offset = found.end_offset - 1
    return TableFile(found.name, partition, found.base_offset, last_offset, 0, 9, 10, 100, (4,))


def manifests() -> dict[int, Manifest]:
    topic, topic_id, _ = IDENTITY
    return {
        partition: Manifest(
            *(topic, topic_id, partition, 1, 0, 0, 10 * FILES),
            tuple(segment(partition, number) for number in range(FILES)),
            *((), None, (), 0),
        )
        for partition in range(PARTITIONS)
    }


def live_files(found: dict[int, Manifest], missing: int = 0) -> tuple[LiveFile, ...]:
    """Return all files, without the last ones of the first partition."""
    return tuple(
        file_of(each, partition).live
        for partition, manifest in found.items()
        for each in manifest.segments[: FILES - (missing if partition == 0 else 0)]
    )


def snapshot(number: int, committer: str) -> TableSnapshot:
    ends = dict.fromkeys(range(PARTITIONS), 0)
    return TableSnapshot(number, number, time.time_ns() // 1_000_000, IDENTITY.topic_id, 1, committer, ends)


def machine() -> TopicTable:
    return TopicTable(IDENTITY, 1, "me", TableSettings(100, 600_000), PARTITIONS)


def measure_machine() -> None:
    table, found = machine(), manifests()
    now_ms = 0

    def timed(event: TableEvent) -> tuple[Any, float]:
        nonlocal now_ms
        now_ms += 1_000
        begun_s = time.perf_counter()
        effect = table.handle(event, now_ms, now_ms)
        return effect, 1_000 * (time.perf_counter() - begun_s)

    timed(Ticked())
    newest = snapshot(1, "former")
    _, files_ms = timed(TableRead((newest,), newest, live_files(found, MISSING)))
    effect, compared_ms = timed(ManifestsRead(found))
    print(f"| {PARTITIONS * FILES:,} files are read | {files_ms:.0f} ms |")
    print(f"| all are compared | {compared_ms:.0f} ms |")
    steps_ms = []
    while isinstance(effect, ReadFooters):
        files = {window.segment.name: file_of(window.segment, window.partition) for window in effect.windows}
        effect, step_ms = timed(FootersRead(files))
        steps_ms.append(step_ms)
    assert isinstance(effect, Commit)
    newest = snapshot(2, "me")
    effect, committed_ms = timed(Committed(effect, newest))
    print(f"| a step that reads footers | {max(steps_ms):.1f} ms |")
    print(f"| a commit of {MISSING} files | {committed_ms:.1f} ms |")
    while effect is not None:
        effect, _ = timed(ObjectsListed(()))
    timed(Ticked())
    timed(TableRead((newest,), newest, None))
    _, unchanged_ms = timed(ManifestsRead(found))
    print(f"| manifests that have not changed | {unchanged_ms:.1f} ms |")
    _, changed_ms = timed_change(timed, found, newest)
    print(f"| one manifest of {FILES:,} segments that has | {changed_ms:.0f} ms |")


def timed_change(
    timed: Callable[[TableEvent], tuple[Any, float]], found: dict[int, Manifest], newest: TableSnapshot
) -> tuple[Any, float]:
    timed(Ticked())
    timed(TableRead((newest,), newest, None))
    return timed(ManifestsRead({**found, 0: replace(found[0], written_ms=1)}))


class TableInMemory:
    """Answers as a catalogue with 100,000 files at once does, in the threads of calls."""

    uuid: Final = UUID(int=1)

    def __init__(self, files: tuple[LiveFile, ...]) -> None:
        self._files: Final = files
        self._snapshots: Final = [snapshot(1, "former")]
        self.rounds = 0

    def load(self, *_: object) -> bool:
        return False

    def newest(self) -> TableSnapshot:
        self.rounds += 1
        return self._snapshots[-1]

    def snapshots(self) -> tuple[TableSnapshot, ...]:
        return tuple(self._snapshots)

    def refs(self) -> tuple[TableRef, ...]:
        return ()

    def files(self, *_: object) -> tuple[LiveFile, ...]:
        return self._files

    def metadata_in_use(self, *_: object) -> frozenset[str]:
        return frozenset()

    def commit(self, effect: Commit, *_: object) -> TableSnapshot:
        self._snapshots.append(snapshot(2, effect.committer))
        return self._snapshots[-1]


async def is_owner() -> bool:
    return True


async def store_manifests(directory: Path, found: dict[int, Manifest]) -> None:
    store = DirectoryStore(directory)
    for partition, manifest in found.items():
        await store.create(manifest_name(IDENTITY.topic_id, partition), encode_manifest(manifest))


async def keep_rounds(directory: Path, table: TableInMemory, selector: TurnSelector) -> float:
    """Return the seconds of the loop's longest stop, before the keeper ends and frees all that it knows."""
    store = DirectoryStore(directory)
    await asyncio.sleep(0)
    selector.take_longest()  # The collection before, in which no loop ran.
    keeper = TableKeeper(machine(), store, lambda: cast(Any, table), CatalogThreads(), is_owner)
    keeping = asyncio.create_task(keeper.run())
    await asyncio.sleep(ROUNDS_S)
    longest = selector.take_longest()
    keeping.cancel()
    await asyncio.wait([keeping])
    return longest.ended_s - longest.began_s


def measure_loop() -> None:
    found = manifests()
    table = TableInMemory(live_files(found))
    selector = TurnSelector()
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner,
    ):
        runner.run(store_manifests(Path(directory), found))
        with freezing_survivors():  # as in the controller's process
            stop_s = runner.run(keep_rounds(Path(directory), table, selector))
        ending = selector.take_longest()
    print(f"| the loop's longest stop in {table.rounds} rounds | {1_000 * stop_s:.0f} ms |")
    print(f"| its stop when the keeper ends | {1_000 * (ending.ended_s - ending.began_s):.0f} ms |")


def main() -> None:
    print("| | |")
    print("|---|---|")
    measure_machine()
    measure_loop()


if __name__ == "__main__":
    main()
