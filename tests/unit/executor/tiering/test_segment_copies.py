"""What a leader's copies have in them, besides the records as they are."""

import asyncio
import logging
import secrets
import threading
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from sparklog.executor.tiering.byte_turns import ByteTurns
from sparklog.executor.tiering.copy_threads import CopyThreads
from sparklog.executor.tiering.machine.events import CopySegment
from sparklog.executor.tiering.machine.plans import MERGED_SEGMENTS
from sparklog.executor.tiering.segment_copies import COPIES_AT_A_TIME, SegmentCopies
from sparklog.executor.tiering.tier_counts import TierCounts
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metadata.schemas import ConfigRecord, ResourceType
from sparklog.node.remote_log.object_store import Version
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.faulty_store import MemoryStore
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import produce, rows
from tests.unit.executor.tiering.tiered_brokers import bucket_of, manifest_of, tiered_brokers

SCHEMA = "sparklog.table.value.schema"
TABLE = {"sparklog.table.enable": "true", SCHEMA: "id INT"}
FIRST = [b'{"id":1,"name":"a"}', b'{"id":"x"}', None]
SECOND = [b'{"id":3000000000,"name":"b"}']


async def append_and_copy(
    brokers: Brokers, topic_id: UUID, values: list[bytes | None], end_offset: int
) -> None:
    channel = await brokers.connect(0)
    records = build_batch([SimpleRecord(None, value, (), wall_clock_ms()) for value in values])
    (row,) = rows(await channel.request(produce(topic_id, records)))
    assert row.error_code is ErrorCode.none

    def is_copied() -> bool:
        manifest = manifest_of(brokers, 0, topic_id)
        return manifest is not None and manifest.end_offset == end_offset

    await until(is_copied, "all is copied")


def objects(brokers: Brokers, directory: Path, topic_id: UUID) -> list[pq.ParquetFile]:
    """Return the segments that the manifest names."""
    manifest = manifest_of(brokers, 0, topic_id)
    assert manifest is not None
    return [pq.ParquetFile(bucket_of(directory) / each.name) for each in manifest.segments]


async def set_schema(brokers: Brokers, schema: str) -> None:
    kind = ResourceType.TOPIC
    await brokers.commit(ConfigRecord(resource_type=kind, resource_name="t", name=SCHEMA, value=schema))


def test_segments_of_a_table_have_the_typed_columns_of_their_time(tmp_path: Path) -> None:
    """A wider type and a further column are in later segments, and in all that a merge writes again."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], TABLE)
            await append_and_copy(brokers, topic_id, [*FIRST], 3)
            await set_schema(brokers, "id BIGINT, name STRING")
            await append_and_copy(brokers, topic_id, [*SECOND], 4)
            first, second = objects(brokers, tmp_path, topic_id)
            assert first.read(columns=["id"]).to_pydict() == {"id": [1, None, None]}
            assert second.read(columns=["id", "name"]).to_pydict() == {"id": [3_000_000_000], "name": ["b"]}
            ids = [file.schema_arrow.field("id").metadata[b"PARQUET:field_id"] for file in (first, second)]
            assert ids[0] == ids[1]
            counts = brokers.brokers[0].replicas.remote_log.metrics.of("t")  # type: ignore[union-attr]
            assert counts.unparsed_values == 1
            for number in range(MERGED_SEGMENTS - 2):
                await append_and_copy(brokers, topic_id, [b"x"], 5 + number)
            await until(lambda: len(objects(brokers, tmp_path, topic_id)) == 1, "they are merged")
            (merged,) = objects(brokers, tmp_path, topic_id)
            found = merged.read(columns=["id", "name", "value"]).to_pydict()
            assert found["id"][:5] == [1, None, None, 3_000_000_000, None]
            assert found["name"][:5] == ["a", None, None, "b", None]
            assert found["value"][:4] == [*FIRST, *SECOND]
            assert counts.unparsed_values == 1 + MERGED_SEGMENTS - 2, "a merge counts none again"

    asyncio.run(play())


def test_schema_that_this_version_cannot_read_leaves_typed_columns_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A later version may have accepted it; the copies must go on, or disks would fill."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], {**TABLE, SCHEMA: "id VARIANT"})
            await append_and_copy(brokers, topic_id, [*FIRST], 3)
            (file,) = objects(brokers, tmp_path, topic_id)
            assert "id" not in file.schema_arrow.names

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "VARIANT is no type of typed columns" in caplog.text


class _HeldStore(MemoryStore):
    """Holds the segments that are written to it until there are so many."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._go_on = asyncio.Event()
        self.under_way = self.most_under_way = 0

    async def create(self, name: str, data: bytes | memoryview | Path) -> Version:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if self.under_way == self._count:
            self._go_on.set()
        await self._go_on.wait()
        # The next ones come before those that are there end.
        await asyncio.sleep(0.01)
        self.under_way -= 1
        return await super().create(name, data)


@pytest.mark.parametrize(("value_bytes", "at_a_time"), [(10, 6), (3 << 19, COPIES_AT_A_TIME)])
def test_small_segments_wait_for_the_store_together_and_large_ones_two_at_a_time(
    tmp_path: Path, value_bytes: int, at_a_time: int
) -> None:
    """The end of a cluster copies a little of a thousand partitions; large files take memory to upload."""

    @with_brokers(config={"message.max.bytes": str(1 << 22)})
    async def body(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)] * 6)
        channel = await brokers.connect(0)
        value = secrets.token_bytes(value_bytes)
        for number in range(6):
            sent = [None] * number + [build_batch([SimpleRecord(None, value, (), 1)])]
            (row,) = rows(await channel.request(produce(topic_id, *sent)))
            assert row.error_code is ErrorCode.none
        store, threads = _HeldStore(at_a_time), CopyThreads(COPIES_AT_A_TIME)
        copies = SegmentCopies(store, threads, ByteTurns(None))
        counts = TierCounts()
        written = await asyncio.gather(
            *(
                copies.write(
                    brokers.replica(0, topic_id, number),
                    CopySegment(0, 1, f"segment-{number}", f"producers-{number}"),
                    threading.Event(),
                    counts,
                )
                for number in range(6)
            )
        )
        assert [each.segment and each.segment.record_count for each in written] == [1] * 6
        assert store.most_under_way == at_a_time
        threads.close()

    body(tmp_path)
