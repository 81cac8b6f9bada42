"""A committer whose process is killed at any step of its commits, again and again."""

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from sparklog.driver.controller.tables.machine.table_files import table_prefix
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import appended, empty_manifest, replaced, started_at
from sparklog.node.remote_log.machine.manifest_encoding import encode_manifest
from sparklog.node.remote_log.machine.names import manifest_name, segment_file_name, segments_prefix
from sparklog.node.remote_log.segments.merge import merge_segments
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.segments.segment_writer import WrittenSegment, write_segment
from tests.cluster import wait_for
from tests.component.tables.committer import IDENTITY, PARTITIONS, catalog_properties, keep_table

KILLS = 6
RECORDS = 50
TIMEOUT_S = 60.0


class Tier:
    """The tier of two partitions, as their leader writes it."""

    def __init__(self, bucket: Path) -> None:
        self._bucket = bucket
        self._store = DirectoryStore(bucket)
        self._names = 0
        self.manifests = [
            empty_manifest(*IDENTITY[:2], partition, start_offset=0, owner_epoch=1, leader_epoch=0)
            for partition in range(PARTITIONS)
        ]

    def put(self, manifest: Manifest) -> None:
        self.manifests[manifest.partition] = manifest
        path = self._bucket / manifest_name(manifest.topic_id, manifest.partition)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(encode_manifest(manifest))
        part.rename(path)

    def _new_path(self, partition: int, base_offset: int) -> Path:
        self._names += 1
        prefix = segments_prefix(IDENTITY.topic, IDENTITY.topic_id, partition)
        path = self._bucket / prefix / segment_file_name(base_offset, 0, f"a-{self._names}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _segment(self, path: Path, base: int, end: int, written: WrittenSegment) -> RemoteSegment:
        return RemoteSegment(
            str(path.relative_to(self._bucket)),
            base,
            end,
            written.record_count,
            written.size_bytes,
            written.raw_bytes,
            written.first_timestamp_ms,
            written.max_timestamp_ms,
            written.crc32c,
        )

    def copy(self, partition: int) -> None:
        manifest = self.manifests[partition]
        base, end = manifest.end_offset, manifest.end_offset + RECORDS
        path = self._new_path(partition, base)
        written = write_segment(
            [records(partition, base, end)],
            path,
            topic=IDENTITY.topic,
            topic_id=IDENTITY.topic_id,
            partition=partition,
        )
        self.put(appended(manifest, end, self._segment(path, base, end, written), None, ()))

    def merge(self, partition: int) -> None:
        manifest = self.manifests[partition]
        run = manifest.segments[-3:]
        path = self._new_path(partition, run[0].base_offset)
        written = asyncio.run(
            merge_segments(
                self._store,
                run,
                path,
                topic=IDENTITY.topic,
                topic_id=IDENTITY.topic_id,
                partition=partition,
            )
        )
        merged = self._segment(path, run[0].base_offset, run[-1].end_offset, written)
        new = replaced(manifest, run, merged)
        assert new is not None
        self.put(new)

    def expire(self, partition: int, start_offset: int) -> None:
        self.put(started_at(self.manifests[partition], start_offset))


def records(partition: int, base: int, end: int) -> pa.RecordBatch:
    count = end - base
    return pa.RecordBatch.from_pydict(
        {
            "partition": [partition] * count,
            "offset": list(range(base, end)),
            "timestamp": [1_000 * offset for offset in range(base, end)],
            "timestampType": [0] * count,
            "key": [None] * count,
            "value": [b"%d" % offset for offset in range(base, end)],
            "headers": [None] * count,
        },
        schema=SCHEMA,
    )


def offsets(catalog: Catalog) -> list[tuple[int, int]]:
    """Return (partition, offset) of each row of the table, in order.

    A snapshot that has expired meanwhile, since this process was slow, is given up for the newest.
    """
    while True:
        try:
            table = catalog.load_table(IDENTITY.name)
        except NoSuchTableError:
            return []
        try:
            rows = table.scan(selected_fields=("partition", "offset")).to_arrow()
        except FileNotFoundError:
            snapshot = table.current_snapshot()
            if snapshot is None or newest(catalog) == snapshot.snapshot_id:
                raise
            continue
        columns = (rows.column(name).to_pylist() for name in ("partition", "offset"))
        return sorted(zip(*columns, strict=True))


def moment(number: int, directory: Path, catalog: Catalog, randomness: random.Random) -> Callable[[], bool]:
    """Return a look whether the moment for a kill has come: in a commit, behind one, or at any time."""
    metadata = directory / "bucket" / table_prefix(IDENTITY.topic, IDENTITY.topic_id) / "metadata"
    written, committed = len(list(metadata.glob("*.avro"))), newest(catalog)
    due_s = time.monotonic() + randomness.uniform(0.0, 2.0)

    def is_in_commit() -> bool:
        return len(list(metadata.glob("*.avro"))) > written

    def is_behind_commit() -> bool:
        return newest(catalog) != committed

    def is_any_time() -> bool:
        return time.monotonic() > due_s

    return (is_in_commit, is_behind_commit, is_any_time)[number % 3]


def newest(catalog: Catalog) -> int | None:
    try:
        snapshot = catalog.load_table(IDENTITY.name).current_snapshot()
    except NoSuchTableError:
        return None
    return None if snapshot is None else snapshot.snapshot_id


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rows_are_there_once_whenever_a_committer_is_killed(tmp_path: Path) -> None:
    """No record twice in any snapshot, none lost, and no file of a snapshot gone, wherever a kill comes."""
    (tmp_path / "bucket").mkdir()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.component.tables.committer"])
    randomness = random.Random(11)
    catalog = load_catalog("sparklog", **catalog_properties(tmp_path))
    tier = Tier(tmp_path / "bucket")
    process: BaseProcess | None = None
    try:
        for owner_epoch in range(1, KILLS + 1):
            for partition in range(PARTITIONS):
                tier.manifests[partition] = replace(tier.manifests[partition], owner_epoch=owner_epoch)
                for _ in range(randomness.randint(1, 3)):
                    tier.copy(partition)
                if owner_epoch % 3 == 2:
                    tier.merge(partition)
            process = context.Process(target=keep_table, args=(tmp_path, owner_epoch))
            process.start()
            wait_for(moment(owner_epoch, tmp_path, catalog, randomness), "its work", TIMEOUT_S)
            process.kill()
            process.join(TIMEOUT_S)
            read = offsets(catalog)
            assert len(read) == len(set(read)), "no snapshot has a record twice"
        tier.expire(0, 2 * RECORDS)
        process = context.Process(target=keep_table, args=(tmp_path, KILLS + 1))
        process.start()
        expected = [
            (manifest.partition, offset)
            for manifest in tier.manifests
            for offset in range(manifest.log_start_offset, manifest.end_offset)
        ]
        wait_for(lambda: offsets(catalog) == expected, "the table is the topic", TIMEOUT_S)
        wait_for(lambda: objects(tmp_path) == named(tier), "nothing is left behind", TIMEOUT_S)
    finally:
        if process is not None:
            process.kill()
            process.join(TIMEOUT_S)


def objects(directory: Path) -> set[str]:
    bucket = directory / "bucket"
    return {str(path.relative_to(bucket)) for path in bucket.glob("segments/**/*.parquet")}


def named(tier: Tier) -> set[str]:
    return {segment.name for manifest in tier.manifests for segment in manifest.segments}
